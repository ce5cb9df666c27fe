import Foundation
import Testing

/// Checks what docs/architecture.md states about where things are.
@Suite struct ArchitectureTests {
    @Test("only Socket.swift calls the system's socket functions")
    func sockets() throws {
        let functions = ["bind", "connect", "accept4", "send", "recv", "setsockopt", "getsockopt"]
        var callers: Set<String> = []
        let sources = Page.root.appending(path: "Sources")
        let files = try #require(FileManager.default.enumerator(atPath: sources.path()))
        for case let path as String in files where path.hasSuffix(".swift") {
            let lines = try Page("Sources/\(path)").text.split(separator: "\n")
            // A call of a C function is marked `unsafe`, or names the function's module, Glibc.
            let calls = functions.flatMap { ["unsafe \($0)(", "Glibc.\($0)("] }
            if lines.contains(where: { line in calls.contains { line.contains($0) } }) {
                callers.insert(path)
            }
        }
        #expect(callers == ["BLESecLinks/Socket.swift"])
        #expect(try Page("docs/architecture.md").text.contains("[Socket.swift]"))
    }

    @Test("each module whose name begins with BLESec is in the page's table of modules")
    func modules() throws {
        let page = try Page("docs/architecture.md").text
        let package = try Page("Package.swift").text
        let targets = ["library(", ".target("].flatMap { kind in
            package.split(separator: kind).dropFirst().map { part in
                String(part.drop { $0 != "\"" }.dropFirst().prefix { $0 != "\"" })
            }
        }.filter { $0.hasPrefix("BLESec") }
        #expect(targets.count > 10, "\(targets)")
        for target in targets { #expect(page.contains("| `\(target)` |"), "\(target)") }
    }
}
