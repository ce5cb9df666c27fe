/// Suggests a known word for an unknown one.
package enum Suggestion {
    /// `: did you mean X?` with the nearest word, or an empty text when none is near.
    package static func text(for word: String, among candidates: [String]) -> String {
        guard let nearest = nearest(to: word, among: candidates) else { return "" }
        return ": did you mean `\(nearest)`?"
    }

    /// The candidate with the smallest distance to the word, if the distance is at most one, or at
    /// most a third of the candidate's letters (an option's leading dashes do not count). Otherwise
    /// the candidate that begins with the word, if there is exactly one and the word has at least
    /// three characters.
    private static func nearest(to word: String, among candidates: [String]) -> String? {
        // Comparing a very long word would take long.
        guard word.utf8.count <= 64 else { return nil }
        let rated = candidates.map { (word: $0, distance: distance(word, $0)) }
        let best = rated.min { $0.distance < $1.distance }
        if let best, best.distance <= max(1, best.word.drop { $0 == "-" }.count / 3) {
            return best.word
        }
        let longer = candidates.filter { word.count > 2 && $0.hasPrefix(word) }
        return longer.count == 1 ? longer.first : nil
    }

    /// The smallest number of letters to insert, remove, replace or swap with a neighbour so that
    /// the words become equal (the optimal string alignment distance).
    private static func distance(_ first: String, _ second: String) -> Int {
        let left = Array(first.unicodeScalars)
        let right = Array(second.unicodeScalars)
        var rowBeforeLast: [Int] = []
        var lastRow = Array(0...right.count)
        for row in 0..<left.count {
            var nextRow = [row + 1]
            for column in 0..<right.count {
                let isSame = left[row] == right[column]
                var best = min(
                    lastRow[column] + (isSame ? 0 : 1), lastRow[column + 1] + 1, nextRow[column] + 1
                )
                if row > 0, column > 0, left[row] == right[column - 1],
                    left[row - 1] == right[column]
                {
                    best = min(best, rowBeforeLast[column - 1] + 1)
                }
                nextRow.append(best)
            }
            rowBeforeLast = lastRow
            lastRow = nextRow
        }
        return lastRow[right.count]
    }
}
