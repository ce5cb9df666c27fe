/// A set of paths. It chooses a random path in constant time, which `Set` cannot do.
struct PathSet: Sendable {
    private var paths: [String] = []
    private var positions: [String: Int] = [:]

    mutating func insert(_ path: String) {
        guard positions[path] == nil else { return }
        positions[path] = paths.count
        paths.append(path)
    }

    mutating func remove(_ path: String) {
        guard let position = positions.removeValue(forKey: path) else { return }
        // The last path takes the place of the removed one.
        let last = paths.removeLast()
        guard last != path else { return }
        paths[position] = last
        positions[last] = position
    }

    func randomElement() -> String? { paths.randomElement() }
}
