import TestSupport
import Testing

/// Checks what docs/dependencies.md and README.md state about required libraries and packages.
@Suite struct DependencyTests {
    @Test(
        "a tool is linked only with libraries of docs/dependencies.md, not libbluetooth or libsystemd",
        arguments: ["blesec", "blesec-bench"])
    func linked(_ tool: String) throws {
        let outcome = try Subprocess.run("readelf", ["-d", "-W", Program.path(tool)])
        try #require(outcome.status == 0, "\(outcome.errors)")
        let needed = outcome.text.split(separator: "\n").filter { $0.contains("(NEEDED)") }
            .compactMap { line in
                line.split(separator: "[").last?.split(separator: "]").first.map(String.init)
            }
        #expect(needed.contains { $0.hasPrefix("libsodium.so") })
        #expect(!needed.contains { $0.hasPrefix("libbluetooth") || $0.hasPrefix("libsystemd") })
        let page = try Page("docs/dependencies.md").text
        let listed = try #require(page.split(separator: "## Headers only").first)
        for library in needed where !library.hasPrefix("libswift") {
            // A build with a sanitizer names these parts of glibc too; the page lists glibc once.
            let isPartOfGlibc = ["ld-linux", "libdl.", "libpthread.", "librt.", "libresolv."]
                .contains { library.hasPrefix($0) }
            #expect(isPartOfGlibc || listed.contains("`\(library)`"), "\(library)")
        }
        #expect(!needed.contains { $0.contains("Foundation") })
    }

    @Test(
        "README.md, docs/dependencies.md and tools/install name the packages that a build needs")
    func packages() throws {
        let commands = try Page("README.md").blocks("sh").joined().replacing("\\\n", with: "")
        let line = try #require(
            commands.split(separator: "\n").first { $0.hasPrefix("apt-get install ") })
        let namedPackages = Set(line.split(separator: " ").dropFirst(2))
        let providers = try Page("Package.swift").text.split(separator: ".apt([\"").dropFirst()
            .map { $0.prefix { $0 != "\"" } }
        #expect(providers.count == 6)
        // CBLESecSDBus has no provider, since it is not a system library target, but it needs
        // libsystemd's header.
        #expect(namedPackages == Set(providers + ["g++", "pkg-config", "libsystemd-dev"]))
        let script = try Page("tools/install").text
        let page = try Page("docs/dependencies.md").text
        for package in namedPackages {
            #expect(script.contains("\"\(package) "), "tools/install: \(package)")
            #expect(page.contains("`\(package)`"), "docs/dependencies.md: \(package)")
        }
    }

    @Test("docs/dependencies.md names every package that tools/install and lab/install install")
    func installed() throws {
        let page = try Page("docs/dependencies.md").text
        for script in ["tools/install", "lab/install"] {
            // A row of tools/install is "PACKAGE  CHECK", and a row of lab/install is
            // "FILE PACKAGE".
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
