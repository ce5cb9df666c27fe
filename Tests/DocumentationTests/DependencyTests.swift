import TestSupport
import Testing

/// What docs/dependencies.md says of the libraries and packages that blesec needs.
@Suite struct DependencyTests {
    @Test(
        "a tool needs no library that the page does not name as linked, and not libbluetooth",
        arguments: ["blesec", "blesec-bench"])
    func linked(_ tool: String) throws {
        let outcome = try Subprocess.run("readelf", ["-d", "-W", Program.path(tool)])
        try #require(outcome.status == 0, "\(outcome.errors)")
        let needed = outcome.text.split(separator: "\n").filter { $0.contains("(NEEDED)") }
            .compactMap { line in
                line.split(separator: "[").last?.split(separator: "]").first.map(String.init)
            }
        #expect(needed.contains { $0.hasPrefix("libsodium.so") })
        #expect(!needed.contains { $0.hasPrefix("libbluetooth") })
        let page = try Page("docs/dependencies.md").text
        let linked = try #require(page.split(separator: "## Headers only").first)
        for library in needed where !library.hasPrefix("libswift") {
            // Parts of glibc, which sanitizers ask for by name.
            let isC = ["ld-linux", "libdl.", "libpthread.", "librt.", "libresolv."]
                .contains { library.hasPrefix($0) }
            #expect(isC || linked.contains("`\(library)`"), "\(library)")
        }
        #expect(!needed.contains { $0.contains("Foundation") })
    }

    @Test("docs/dependencies.md names what tools/install and lab/install install")
    func installed() throws {
        let page = try Page("docs/dependencies.md").text
        for script in ["tools/install", "lab/install"] {
            // "PACKAGE   how to see that it is there", or "FILE PACKAGE".
            let rows = try Page(script).text.split(separator: "\n")
                .filter { $0.hasPrefix("  \"") && !$0.hasPrefix("  \"$") }
                .map { $0.dropFirst(3).split(separator: " ").map { $0.filter { $0 != "\"" } } }
            #expect(rows.count > 7)
            for row in rows {
                let package = script == "lab/install" ? row.last : row.first
                #expect(package.map { page.contains("`\($0)`") } == true, "\(row)")
            }
        }
    }
}
