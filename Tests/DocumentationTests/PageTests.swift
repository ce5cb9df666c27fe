import FoundationEssentials
import TestSupport
import Testing

/// Checks that the files, commands and make targets that the documentation names exist.
@Suite struct PageTests {
    /// The pages in the package's folder, and all pages in `docs`.
    static func pages() throws -> [String] {
        let names = try FileManager.default.contentsOfDirectory(
            atPath: Page.root.appending(path: "docs").path)
        return [
            "README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "TestVectors/README.md",
        ] + names.filter { $0.hasSuffix(".md") }.sorted().map { "docs/\($0)" }
    }

    @Test("a page's links to files lead to existing files", arguments: try pages())
    func links(_ path: String) throws {
        let page = try Page(path)
        for target in page.links where !target.contains("://") && !target.hasPrefix("#") {
            let file = page.url.deletingLastPathComponent()
                .appending(path: String(target.prefix { $0 != "#" }))
            #expect(FileManager.default.fileExists(atPath: file.path), "\(target)")
        }
    }

    @Test("the paths in README.md's table of folders exist")
    func folders() throws {
        let readme = try Page("README.md")
        let table = try #require(readme.text.split(separator: "## Where things are").last)
        for row in table.split(separator: "\n") where row.hasPrefix("| `") {
            let cell = row.dropFirst(2).prefix { $0 != "|" }
            // The cell begins with a path in backticks. So parts 0, 2, 4 and so on are paths, and
            // the others are the text between two paths.
            for (index, name) in cell.split(separator: "`").enumerated() where index % 2 == 0 {
                guard !name.hasSuffix("…") else { continue }
                let file = Page.root.appending(path: String(name))
                #expect(FileManager.default.fileExists(atPath: file.path), "\(name)")
            }
        }
    }

    @Test(
        "the commands and options of `blesec` in a page's shell blocks exist",
        arguments: [
            ("README.md", 17), ("docs/authority.md", 6), ("docs/choosing.md", 2),
            ("docs/discovery.md", 7), ("docs/files.md", 4),
        ])
    func toolCommands(_ path: String, commandCount: Int) throws {
        let text = try Page(path).blocks("sh").joined().replacing("\\\n", with: "")
        let lines = text.split(separator: "\n")
            .map { $0.split(separator: " ").map(String.init) }.filter { $0.first == "blesec" }
        #expect(lines.count == commandCount)
        for words in lines {
            let isGroup = ["ca", "peers"].contains(words[1])
            let command = isGroup ? words[1...2] : words[1...1]
            let help = try Subprocess.run(Program.path("blesec"), command + ["--help"])
            #expect(help.status == 0, "\(words)")
            // In the list of options, an option's name may follow its short form.
            let options = help.text.split(separator: "\n").compactMap { line in
                line.wholeMatch(of: #/ {7}(?:-., )?(--[a-z-]+).*/#)?.1
            }
            for option in words where option.hasPrefix("--") {
                #expect(options.contains { $0 == option }, "\(option)")
            }
        }
    }

    @Test("make help names every make target in README.md and CONTRIBUTING.md")
    func targets() throws {
        let help = try Subprocess.run("make", ["-s", "-C", Page.root.path, "help"]).text
        for page in ["README.md", "CONTRIBUTING.md"] {
            // A command is in code or at the beginning of a line: "`make", "\nmake".
            let parts = try Page(page).text.split(separator: "make ")
            for (before, after) in zip(parts, parts.dropFirst())
            where before.hasSuffix("`") || before.hasSuffix("\n") {
                let target = after.prefix { $0.isLetter || $0.isNumber || $0 == "-" }
                #expect(target == "help" || help.contains("make \(target) "), "in \(page)")
            }
        }
    }
}
