import Glibc
import TestSupport
import Testing

/// The identities and the socket path of two tools, a listener and a dialer.
struct ToolPair {
    let folder = ScratchFolder()
    /// The listener's fingerprint.
    let listenerKey: String
    /// The dialer's fingerprint.
    let dialerKey: String

    /// Makes the identities.
    init() throws {
        var fingerprints: [String] = []
        for name in ["listener", "dialer"] {
            let made = try Tool.run("keygen", folder.file(name))
            try #require(made.status == 0, "\(made.errors)")
            let line = try #require(made.text.split(separator: "\n").last)
            fingerprints.append(String(line.dropFirst("fingerprint: ".count)))
        }
        listenerKey = fingerprints[0]
        dialerKey = fingerprints[1]
    }

    /// The endpoint of a socket in the folder; `kind` is `unix` or `unix-seqpacket`.
    func endpoint(_ kind: String = "unix") -> String { "\(kind):\(folder.file("socket"))" }

    /// Starts a listener, and returns it when it can be dialed. It trusts the dialer or, if there
    /// are options `trust`, the peers that these options name.
    func listen(
        _ arguments: [String] = [], kind: String = "unix", trust: [String]? = nil,
        input: Subprocess.Input = .bytes([]), output: String? = nil, within seconds: Double = 20
    ) throws -> Subprocess {
        let listener = try Tool.start(
            ["listen", endpoint(kind), "--identity", folder.file("listener")]
                + (trust ?? ["--peer", dialerKey]) + arguments,
            input: input, output: output, within: seconds)
        let line = try listener.line("listening on ")
        #expect(line == "listening on \(endpoint(kind))")
        return listener
    }

    /// Starts a dialer. It trusts the listener or, if there are options `trust`, the peers that
    /// these options name.
    func connect(
        _ arguments: [String] = [], kind: String = "unix", trust: [String]? = nil,
        input: Subprocess.Input = .bytes([]), output: String? = nil, within seconds: Double = 20
    ) throws -> Subprocess {
        try Tool.start(
            ["connect", endpoint(kind), "--identity", folder.file("dialer")]
                + (trust ?? ["--peer", listenerKey]) + arguments,
            input: input, output: output, within: seconds)
    }

    /// Makes a FIFO, and fills it. Returns its path, and a descriptor. The FIFO stays full while
    /// the descriptor is open.
    func fullFIFO() throws -> (path: String, descriptor: Int32) {
        let path = folder.file("full")
        try #require(unsafe mkfifo(path, 0o600) == 0)
        let descriptor = unsafe open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        try #require(descriptor >= 0)
        let lines = [UInt8](repeating: UInt8(ascii: "\n"), count: 4_096)
        while unsafe write(descriptor, lines, lines.count) > 0 {}
        return (path, descriptor)
    }

    /// The line that a dialer prints when its channel is ready.
    var dialerReadyLine: String {
        "channel ready: Noise_XX_25519_ChaChaPoly_SHA256 with \(listenerKey)"
    }

    /// The line that a listener prints when its channel is ready.
    var listenerReadyLine: String {
        "channel ready: Noise_XX_25519_ChaChaPoly_SHA256 with \(dialerKey)"
    }

    /// Pseudo-random bytes that depend only on the seed and the count. One block of 4,093 bytes is
    /// repeated. Before each copy of the block is the copy's number, from 0, in four bytes.
    static func pseudoRandomBytes(_ count: Int, seed: UInt64) -> [UInt8] {
        var state = seed &* 0x9E37_79B9_7F4A_7C15 | 1
        let block = (0..<4_093).map { _ in
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return UInt8(truncatingIfNeeded: state)
        }
        var bytes: [UInt8] = []
        var number: UInt32 = 0
        while bytes.count < count {
            bytes += [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
            bytes += block
            number += 1
        }
        bytes.removeLast(bytes.count - count)
        return bytes
    }
}
