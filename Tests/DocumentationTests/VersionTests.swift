import FoundationEssentials
import TestSupport
import Testing

/// The version is defined once, in `Program.version` of BLESecToolKit. These tests compare the
/// pages with the version that the tools print.
@Suite struct VersionTests {
    private func version() throws -> Substring {
        let words = try Subprocess.run(Program.path("blesec"), ["--version"]).text
            .split { $0 == " " || $0 == "\n" }
        try #require(words.count == 2)
        return words[1]
    }

    @Test("both tools have the same version, and README.md names it")
    func tools() throws {
        let version = try version()
        let bench = try Subprocess.run(Program.path("blesec-bench"), ["--version"])
        #expect(bench.text == "blesec-bench \(version)\n")
        #expect(try Page("README.md").text.contains("**Status:** version \(version), "))
    }

    @Test("the newest section of CHANGELOG.md has the tools' version")
    func changelog() throws {
        let text = try Page("CHANGELOG.md").text
        let heading = try #require(text.split(separator: "\n## [").dropFirst().first)
        #expect(try version() == heading.prefix { $0 != "]" })
    }

    @Test("the version occurs in only one file of the sources")
    func once() throws {
        let quoted = "\"\(try version())\""
        let files = try FileManager.default.subpathsOfDirectory(atPath: Page.root.path + "/Sources")
        let sources = try files.filter { $0.hasSuffix(".swift") }
            .map { try Page("Sources/\($0)").text }
        #expect(sources.count { $0.contains(quoted) } == 1)
    }
}
