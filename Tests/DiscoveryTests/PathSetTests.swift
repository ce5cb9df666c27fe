import BLESecTesting
import Testing

@testable import BLESecDiscovery

@Suite("Sets of paths")
struct PathSetTests {
    @Test("a random path is always one that was inserted and not removed")
    func model() {
        var generator = SeededGenerator(seed: 1)
        var paths = PathSet()
        var model: Set<String> = []
        #expect(paths.randomElement() == nil)
        for _ in 0..<2_000 {
            let path = "\(Int.random(in: 0..<8, using: &generator))"
            if Bool.random(using: &generator) {
                paths.insert(path)
                model.insert(path)
            } else {
                paths.remove(path)
                model.remove(path)
            }
            let element = paths.randomElement()
            #expect(element.map(model.contains) ?? model.isEmpty)
        }
    }

    @Test("each path is chosen sooner or later")
    func choice() {
        var paths = PathSet()
        for number in 0..<4 { paths.insert("\(number)") }
        paths.insert("1")
        paths.remove("0")
        // A path is missed once in 10^52 runs.
        let chosen = Set((0..<300).compactMap { _ in paths.randomElement() })
        #expect(chosen == ["1", "2", "3"])
    }
}
