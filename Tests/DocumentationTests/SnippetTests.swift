import FoundationEssentials
import Testing

/// Checks that the Swift code on pages is copied from the package `Examples`, which
/// `tools/check examples` builds against the public interface.
@Suite struct SnippetTests {
    static let folder = "Examples/Sources"

    @Test(
        "a page's Swift code is in a file of the examples, apart from indentation, and so are its imports",
        arguments: [
            ("README.md", 2), ("Sources/BLESec/BLESec.docc/BLESec.md", 1),
            ("Sources/BLESec/BLESec.docc/Nearby.md", 1), ("Sources/BLESec/BLESec.docc/TLS.md", 1),
            ("Sources/BLESecTesting/BLESecTesting.docc/FaultyLinks.md", 1),
            ("Sources/BLESecNoise/BLESecNoise.docc/BLESecNoise.md", 1), ("docs/noise.md", 1),
        ])
    func copied(_ path: String, leastBlocks: Int) throws {
        let sources = try Self.sources()
        // The test `products` checks code for Package.swift.
        let blocks = try Page(path).blocks("swift").filter { !$0.hasPrefix("dependencies:") }
        #expect(blocks.count >= leastBlocks)
        for block in blocks {
            let lines = block.split(separator: "\n", omittingEmptySubsequences: false)
            let imports = lines.filter { $0.hasPrefix("import ") }
            let code = lines.drop { $0.isEmpty || $0.hasPrefix("import ") }
            // The code is from the top level of a file, or from a function's body, which is
            // indented.
            let text = code.joined(separator: "\n")
            let body = code.map { $0.isEmpty ? "" : "    " + $0 }.joined(separator: "\n")
            #expect(
                sources.contains { source in
                    (source.contains(text) || source.contains(body))
                        && imports.allSatisfy(source.contains)
                }, "not in \(Self.folder):\n\(block)")
        }
    }

    @Test("README.md names all libraries of this package, and shows a dependency on BLESec")
    func products() throws {
        let readme = try Page("README.md")
        let manifest = try #require(readme.blocks("swift").first { $0.hasPrefix("dependencies:") })
        let product = ".product(name: \"BLESec\", package: \"blesec\")"
        #expect(manifest.contains(product))
        #expect(try Page("Examples/Package.swift").text.contains(product))
        let package = try Page("Package.swift").text
        let products = package.split(separator: ".library(name: \"").dropFirst()
            .map { $0.prefix { $0 != "\"" } }
        let sentence = try #require(readme.text.split(separator: "The products are ").last)
            .prefix { $0 != "." }
        // Names are between backticks, so every second part is a name.
        let named = sentence.split(separator: "`", omittingEmptySubsequences: false)
            .enumerated().filter { $0.offset % 2 == 1 }.map(\.element)
        #expect(products.count >= 5 && Set(named) == Set(products), "\(named), \(products)")
    }

    /// The text of each Swift file of the examples.
    private static func sources() throws -> [String] {
        let root = Page.root.appending(path: folder).path
        let files = try FileManager.default.subpathsOfDirectory(atPath: root)
        return try files.filter { $0.hasSuffix(".swift") }.map { try Page("\(folder)/\($0)").text }
    }
}
