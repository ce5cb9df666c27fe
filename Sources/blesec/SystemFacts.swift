internal import Glibc

/// Facts about this machine.
enum SystemFacts {
    /// The kernel, as `uname -sr` prints it.
    static var kernelVersion: String {
        let release = firstLine(of: "/proc/sys/kernel/osrelease") ?? "of unknown version"
        return "Linux " + release
    }

    static var hostName: String? { firstLine(of: "/proc/sys/kernel/hostname") }

    /// The first line that `bluetoothd --version` prints; nil if bluetoothd is not found.
    static var bluetoothdVersion: String? {
        for path in ["/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd"]
        where unsafe access(path, X_OK) == 0 {
            guard let pipe = unsafe popen("\(path) --version 2>/dev/null", "re") else { continue }
            defer { unsafe pclose(pipe) }
            var bytes = [UInt8](repeating: 0, count: 64)
            let count = unsafe fread(&bytes, 1, bytes.count, pipe)
            let line = bytes.prefix(count).prefix { $0 != UInt8(ascii: "\n") }
            if !line.isEmpty { return String(decoding: line, as: UTF8.self) }
        }
        return nil
    }

    /// The arguments of a process; empty if they cannot be read.
    static func commandLine(of process: Int) -> [String] {
        (read("/proc/\(process)/cmdline") ?? []).split(separator: 0).map {
            String(decoding: $0, as: UTF8.self)
        }
    }

    /// The number of ATT channels that bluetoothd opens to a peer, from its configuration file: 3,
    /// bluetoothd's default, if the file does not set it; nil if the file cannot be read or the
    /// value is not a number. `arguments` are bluetoothd's, and may name the file.
    static func attChannels(of arguments: [String]) -> Int? {
        var path = "/etc/bluetooth/main.conf"
        for (argument, next) in zip(arguments, arguments.dropFirst() + [""]) {
            if argument == "-f" || argument == "--configfile" { path = next }
            if argument.hasPrefix("--configfile=") { path = String(argument.dropFirst(13)) }
        }
        guard let bytes = read(path) else { return nil }
        var section = ""
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            let text = String(decoding: line.filter { $0 != UInt8(ascii: " ") }, as: UTF8.self)
            if text.hasPrefix("[") { section = text }
            guard section == "[GATT]", text.hasPrefix("Channels=") else { continue }
            return Int(text.dropFirst(9))
        }
        return 3
    }

    /// The first line of a small file; nil if the file cannot be read.
    static func firstLine(of path: String) -> String? {
        guard let bytes = read(path) else { return nil }
        return String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    private static func read(_ path: String) -> [UInt8]? {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = unsafe Glibc.read(descriptor, &bytes, bytes.count)
        return count >= 0 ? Array(bytes.prefix(count)) : nil
    }
}
