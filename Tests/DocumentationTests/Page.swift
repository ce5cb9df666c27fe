import FoundationEssentials

/// A text file of this package, usually a page of its documentation.
struct Page {
    /// The package's folder.
    static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    let url: URL
    let text: String

    /// Reads a file by its path in the package's folder.
    init(_ path: String) throws {
        url = Self.root.appending(path: path)
        text = try String(contentsOf: url, encoding: .utf8)
    }

    /// The text of each code block whose opening fence names `language`.
    func blocks(_ language: String) -> [String] {
        text.split(separator: "```\(language)\n", omittingEmptySubsequences: false).dropFirst()
            .map { part in
                String(part[..<(part.firstRange(of: "```")?.lowerBound ?? part.endIndex)])
            }
    }

    /// The targets of the page's links. Code blocks are left out: `[UInt8](…)` is no link there.
    var links: [String] {
        let prose = text.split(separator: "```", omittingEmptySubsequences: false).enumerated()
            .filter { $0.offset % 2 == 0 }.map(\.element).joined()
        return prose.split(separator: "](", omittingEmptySubsequences: false).dropFirst()
            .map { part in String(part.prefix { $0 != ")" }) }
    }
}

/// Programs that were built with these tests.
enum Program {
    /// The path of a program, which is in the folder of the test executable.
    static func path(_ name: String) -> String {
        guard let executable = CommandLine.arguments.first,
            let slash = executable.lastIndex(of: "/")
        else {
            return "./" + name
        }
        return executable[...slash] + name
    }
}
