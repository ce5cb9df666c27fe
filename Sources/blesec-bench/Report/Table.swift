/// Columns of text: columns of words are flush left, the others flush right.
struct Table {
    private var rows: [[String]]
    private let wordColumns: Set<Int>

    /// A table with a heading for each column; `wordColumns` has the indices of columns of words.
    init(_ heading: [String], words wordColumns: Set<Int> = [0], rows: [[String]] = []) {
        self.rows = [heading] + rows
        self.wordColumns = wordColumns
    }

    mutating func append(_ row: [String]) { rows.append(row) }

    /// The rows as text, with two spaces between columns.
    var text: String {
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            var line = row.enumerated().map { column, cell in
                let space = String(repeating: " ", count: widths[column] - cell.count)
                return wordColumns.contains(column) ? cell + space : space + cell
            }.joined(separator: "  ")
            while line.last == " " { line.removeLast() }
            return line + "\n"
        }.joined()
    }
}

extension Int {
    /// A size with its unit: `64 B`, `16 KiB`, `65518 B`.
    var bytes: String {
        switch self {
        case let size where size >= 1 << 20 && size % (1 << 20) == 0: "\(size >> 20) MiB"
        case let size where size >= 1 << 10 && size % (1 << 10) == 0: "\(size >> 10) KiB"
        default: "\(self) B"
        }
    }
}

extension Double {
    /// The number with `digits` digits after the point; `-` if the number is not finite. A number
    /// with a magnitude of 2^63 / 10^`digits` or more is written as Swift prints it.
    func fixed(_ digits: Int) -> String {
        guard isFinite else { return "-" }
        var scale = 1
        for _ in 0..<digits { scale *= 10 }
        guard let scaled = Int(exactly: (magnitude * Double(scale)).rounded()) else {
            return "\(self)"
        }
        let sign = self < 0 && scaled != 0 ? "-" : ""
        guard digits > 0 else { return "\(sign)\(scaled)" }
        let fraction = String(scaled % scale)
        let zeros = String(repeating: "0", count: digits - fraction.count)
        return "\(sign)\(scaled / scale).\(zeros)\(fraction)"
    }

    /// The number with two decimals below 10, one decimal below 100, and none from 100 on.
    var short: String { fixed(self >= 100 ? 0 : self >= 10 ? 1 : 2) }
}
