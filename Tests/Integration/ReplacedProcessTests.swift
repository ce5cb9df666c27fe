import Glibc
import TestSupport
import Testing

extension Integration {
    /// `listen` and `connect` with --persist, when a process is killed and started again without a
    /// store.
    @Suite struct ReplacedProcessTests {
        private let pair: ToolPair

        init() throws { pair = try ToolPair() }

        private func listen() throws -> Subprocess {
            let listener = try Tool.start(
                [
                    "listen", "--persist", pair.endpoint(), "--identity",
                    pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            return listener
        }

        private func connect(_ input: Subprocess.Input) throws -> Subprocess {
            try Tool.start(
                [
                    "connect", "--persist", pair.endpoint(), "--identity",
                    pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ], input: input)
        }

        @Test("if a sender is replaced after a part has arrived, the receiver reports this")
        func sender() throws {
            let listener = try listen()
            let first = try connect(.keptOpen)
            first.send(Array("first".utf8))
            _ = try listener.output(5, whileServing: [first])
            first.signal(SIGKILL)
            _ = try first.wait()
            let second = try connect(.bytes(Array("second".utf8)))
            let outcomes = try Subprocess.wait([listener, second])
            #expect(outcomes[0].text == "firstsecond")
            #expect(outcomes.map(\.status) == [76, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[0].errors.contains("a process was replaced without its state"))
        }

        @Test("if a sender is replaced before anything has arrived, both sides succeed")
        func senderWithoutData() throws {
            let listener = try listen()
            let first = try connect(.keptOpen)
            _ = try first.line("channel ready", whileServing: [listener])
            first.signal(SIGKILL)
            _ = try first.wait()
            let outcomes = try Subprocess.wait([
                listener, try connect(.bytes(Array("second".utf8))),
            ])
            #expect(outcomes[0].text == "second")
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        }
    }
}
