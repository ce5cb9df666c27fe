/// The plugins of bluetoothd that use an LE link which another program has made.
///
/// bluetoothd lists its plugins only in its log. A plugin runs if the program contains it, if the
/// command line does not exclude it and, for an experimental plugin, if experimental interfaces are
/// on.
enum BluetoothdPlugins {
    /// A plugin's name, its file in BlueZ's sources, and whether it runs only with experimental
    /// interfaces.
    private static let all: [(name: String, source: String, isExperimental: Bool)] =
        [
            ("battery", "battery/battery.c", false), ("hog", "input/hog.c", false),
            ("input", "input/manager.c", false), ("midi", "midi/midi.c", false),
        ]
        + ["bap", "bass", "mcp", "vcp", "micp", "ccp", "csip", "tmap", "asha"]
        .map { ($0, "audio/\($0).c", true) } + [("rap", "ranging/rap.c", true)]

    /// The plugins that run, according to bluetoothd's program, arguments and configuration. Nil if
    /// the program cannot be read or names no plugin.
    static func running(
        _ arguments: BluetoothdArguments, _ configuration: MainConfiguration?, _ facts: SystemFacts
    ) -> [String]? {
        let paths = (arguments.program.hasPrefix("/") ? [arguments.program] : [])
        for path in paths + SystemFacts.bluetoothdPaths {
            guard case .bytes(let program) = facts.read(path, limit: 16 << 20) else { continue }
            let compiledIn = sources(in: program)
            guard !compiledIn.isEmpty else { return nil }
            let isExperimental =
                arguments.isExperimental
                || ["true", "1"].contains(configuration?.text("General", "Experimental"))
            return all.filter { plugin in
                compiledIn.contains(plugin.source) && arguments.runs(plugin.name)
                    && (isExperimental || !plugin.isExperimental)
            }.map(\.name)
        }
        return nil
    }

    /// The paths of source files that the program contains after `profiles/`. A stripped program
    /// has no symbols, but each plugin has a debugging message with the path of its source file.
    private static func sources(in program: [UInt8]) -> Set<String> {
        let marker = Array("profiles/".utf8)
        var sources: Set<String> = []
        var matched = 0
        var index = 0
        while index < program.count {
            let byte = program[index]
            index += 1
            if byte == marker[matched] {
                matched += 1
            } else {
                // The marker has its first letter only once, so a new match can only begin here.
                matched = byte == marker[0] ? 1 : 0
            }
            guard matched == marker.count else { continue }
            matched = 0
            let name = program[index...].prefix(64).prefix { $0 > 32 && $0 < 127 }
            sources.insert(String(decoding: name, as: UTF8.self))
        }
        return sources
    }
}
