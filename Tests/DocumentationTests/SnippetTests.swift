import FoundationEssentials
import TestSupport
import Testing

/// Checks that the Swift code on pages is copied from the package `Examples`, which
/// `tools/check examples` builds against the public interface.
@Suite struct SnippetTests {
    static let folder = "Examples/Sources"

    /// The pages with Swift code: those of this package's folder, of `docs`, and of the libraries.
    static func pages() throws -> [String] {
        let sources = try FileManager.default.subpathsOfDirectory(
            atPath: Page.root.appending(path: "Sources").path)
        let pages = sources.filter { $0.hasSuffix(".md") }.sorted().map { "Sources/\($0)" }
        return try (PageTests.pages() + pages).filter { try !Page($0).blocks("swift").isEmpty }
    }

    @Test("pages with Swift code are found in the package's folder, in docs and in the libraries")
    func found() throws {
        let pages = try Self.pages()
        for path in [
            "README.md", "docs/files.md", "Sources/BLESecFiles/BLESecFiles.docc/BLESecFiles.md",
        ] {
            #expect(pages.contains(path), "\(path)")
        }
    }

    @Test(
        "each Swift block of a page, indented or not, is in an example file with the block's imports",
        arguments: try pages())
    func copied(_ path: String) throws {
        let sources = try Self.sources()
        // The test `products` checks code for Package.swift.
        let blocks = try Page(path).blocks("swift").filter { !$0.hasPrefix("dependencies:") }
        #expect(!blocks.isEmpty)
        for block in blocks {
            let lines = block.split(separator: "\n", omittingEmptySubsequences: false)
            let imports = lines.filter { $0.hasPrefix("import ") }
            let code = lines.drop { $0.isEmpty || $0.hasPrefix("import ") }
            // The code is from the top level of a file, or from a function's body, which is
            // indented. A block ends with a newline, so both texts consist of whole lines.
            let text = "\n" + code.joined(separator: "\n")
            let body = "\n" + code.map { $0.isEmpty ? "" : "    " + $0 }.joined(separator: "\n")
            #expect(text.hasSuffix("\n") && body.hasSuffix("\n"))
            let isCopied = sources.contains { source in
                let wholeLines = "\n" + source + "\n"
                let sourceLines = Set(source.split(separator: "\n"))
                guard sourceLines.isSuperset(of: imports) else { return false }
                return wholeLines.contains(text) || wholeLines.contains(body)
            }
            #expect(isCopied, "not in \(Self.folder):\n\(block)")
        }
    }

    @Test("README.md names all libraries of this package, and shows a dependency on BLESec")
    func products() throws {
        let readme = try Page("README.md")
        let manifest = try #require(readme.blocks("swift").first { $0.hasPrefix("dependencies:") })
        let product = ".product(name: \"BLESec\", package: \"blesec\")"
        #expect(manifest.contains(product))
        #expect(try Page("Examples/Package.swift").text.contains(product))
        let products = try Self.libraries()
        let sentence = try #require(readme.text.split(separator: "The products are ").last)
            .prefix { $0 != "." }
        // Names are between backticks, so every second part is a name.
        let named = sentence.split(separator: "`", omittingEmptySubsequences: false)
            .enumerated().filter { $0.offset % 2 == 1 }.map(\.element)
        #expect(products.count >= 5 && Set(named) == Set(products), "\(named), \(products)")
    }

    @Test("tools/docs builds the pages of all libraries of this package")
    func documented() throws {
        let documented = try Page("tools/docs").text.split(separator: "\n")
            .map { $0.split(separator: " ") }.filter { $0.first == "document" }
            .compactMap { $0.dropFirst().first }
        let products = try Self.libraries()
        #expect(documented.sorted() == products.sorted())
        for product in products {
            _ = try Page("Sources/\(product)/\(product).docc/\(product).md")
        }
    }

    @Test("make check has the step docs even if docc is not installed")
    func checked() throws {
        let steps = try Subprocess.run(
            "/usr/bin/python3", [Page.root.appending(path: "tools/check").path, "--list"],
            environment: ["PATH": "/nonexistent"])
        let names = steps.text.split(separator: "\n")
        let docs = try #require(names.firstIndex(of: "docs"), "\(steps.errors)")
        // The first step that `make check` does not run.
        let examples = try #require(names.firstIndex(of: "examples"), "\(steps.errors)")
        #expect(docs < examples)
    }

    /// The names of the package's libraries.
    private static func libraries() throws -> [Substring] {
        try Page("Package.swift").text.split(separator: ".library(name: \"").dropFirst()
            .map { $0.prefix { $0 != "\"" } }
    }

    /// The text of each Swift file of the examples.
    private static func sources() throws -> [String] {
        let root = Page.root.appending(path: folder).path
        let files = try FileManager.default.subpathsOfDirectory(atPath: root)
        return try files.filter { $0.hasSuffix(".swift") }.map { try Page("\(folder)/\($0)").text }
    }
}
