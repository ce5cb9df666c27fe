import Glibc
import TestSupport
import Testing

extension Integration {
    /// Commands whose peer runs a command that does not belong to them.
    @Suite struct OtherCommandTests {
        private let pair: ToolPair

        init() throws { pair = try ToolPair() }

        @Test(
            "a message of the peer ends send and receive with 76, and does not count as delivered",
            arguments: ["send", "receive"], [["chat"], ["connect", "--persist"]])
        func message(_ command: String, _ other: [String]) throws {
            let folder = pair.folder
            try #require(unsafe mkdir(folder.file("in"), 0o700) == 0)
            folder.write("photo", [1, 2, 3])
            let listener = try Tool.start(
                [command, pair.endpoint(), folder.file(command == "send" ? "photo" : "in")]
                    + [
                        "--listen", "--identity", folder.file("listener"), "--peer", pair.dialerKey,
                    ],
                input: .keptOpen)
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                other + [
                    pair.endpoint(), "--identity", folder.file("dialer"), "--peer",
                    pair.listenerKey,
                ], input: .bytes(Array("hello\n".utf8)))
            let outcome = try listener.wait(whileServing: [dialer])
            #expect(outcome.status == 76, "\(outcome.errors)")
            #expect(
                outcome.errors.contains(
                    "another command; run `blesec send` on one side and `blesec receive` on the "
                        + "other\n"), "\(outcome.errors)")
            // The peer looks for a new link, and none comes.
            dialer.signal(SIGTERM)
            let peer = try dialer.wait()
            #expect(peer.status != 0 && !peer.errors.contains("delivered"), "\(peer.errors)")
        }
    }
}
