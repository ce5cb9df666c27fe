import Foundation
import Testing

/// Checks what docs/architecture.md states about where things are.
@Suite struct ArchitectureTests {
    @Test("only Socket.swift, and HCI.swift for adapters, call the system's socket functions")
    func sockets() throws {
        // Swift functions of the package have these names too. A call of the C function is marked
        // `unsafe`, or names the function's module, Glibc.
        let sharedNames = #"bind|connect|accept|send|recv|listen"#
        // No Swift function of the package has these names.
        let distinctNames =
            #"socket|socketpair|accept4|sendto|sendmsg|sendmmsg|recvfrom|recvmsg|recvmmsg"#
            + #"|getsockopt|setsockopt|getsockname|getpeername"#
            // C functions of the package that make these and other system calls.
            + #"|blesec_accept|blesec_peer_credentials|blesec_output_queue|blesec_input_queue|blesec_hci_[a-z]+"#
        // `socket`, `listen` and `shutdown` take no pointers, so their calls need no `unsafe`. Some
        // Swift functions are named `listen` or `shutdown`, but have other arguments.
        let swiftCall = try Regex(
            #"(?:unsafe |Glibc\.)(?:\#(sharedNames))\(|(?:Glibc\.|(?:^|[^\w.]))(?:\#(distinctNames))\("#
                + #"|(?:Glibc\.|(?:^|[^\w.]))(?:listen|shutdown)\(\w+, "#)
        let cCall = try Regex(#"\b(?:\#(sharedNames)|\#(distinctNames)|shutdown)\("#)
        var callers: Set<String> = []
        var modulesInC: Set<Substring> = []
        let sources = Page.root.appending(path: "Sources")
        let files = try #require(FileManager.default.enumerator(atPath: sources.path))
        for case let path as String in files {
            if path.hasSuffix(".swift") {
                let lines = try Page("Sources/\(path)").text.split(separator: "\n")
                    .filter { !$0.drop { $0 == " " }.hasPrefix("//") }
                    .map { $0.replacing(#/\bfunc \w+\(/#, with: "") }
                if lines.contains(where: { $0.contains(swiftCall) }) { callers.insert(path) }
            } else if path.hasSuffix(".c") || path.hasSuffix(".h"),
                try Page("Sources/\(path)").text.contains(cCall)
            {
                modulesInC.insert(path.prefix { $0 != "/" })
            }
        }
        #expect(callers == ["BLESecLinks/Socket.swift", "BLESecL2CAP/HCI.swift"])
        #expect(modulesInC == ["CBLESecLinux", "CBLESecBlueZ", "CBLESecBench"])
        let page = try Page("docs/architecture.md").text
        #expect(page.contains("[Socket.swift]") && page.contains("[HCI.swift]"))
    }

    @Test("no command of the tool has a policy that asks the program")
    func noAsking() throws {
        let folder = Page.root.appending(path: "Sources/blesec").path
        let files = try FileManager.default.subpathsOfDirectory(atPath: folder)
            .filter { $0.hasSuffix(".swift") }
        #expect(files.count > 60)
        for file in files {
            #expect(try !Page("Sources/blesec/\(file)").text.contains(".asking"), "\(file)")
        }
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
