import BLESec
import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESecFiles

/// Files between two connections in this process.
@Suite("Files: two connections")
struct FileConnectionTests {
    private let scratch = TemporaryFolder()

    /// The configuration of a side with a new key.
    private func configuration() throws -> ChannelConfiguration {
        var configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        configuration.carriesDelivery = true
        configuration.allowsExposedIdentity = true
        return configuration
    }

    private func endpoint() throws -> Endpoint {
        try Endpoint(parsing: "unix:\(scratch.path("socket"))")
    }

    /// A connection that accepts the links of the other side.
    private func startAcceptor() async throws -> PeerConnection {
        let listener = try await SecureListener.listen(
            on: try endpoint(), configuration: try configuration())
        return await PeerConnection.start(.accepting(from: listener), delivery: .exactlyOnce())
    }

    private func startDialer(_ configuration: ChannelConfiguration) async throws -> PeerConnection {
        await PeerConnection.start(
            .dialing(try endpoint(), configuration: configuration), delivery: .exactlyOnce())
    }

    /// Connects two sides, runs `body` with them, and aborts both.
    private func withConnections(
        _ body: (_ sender: PeerConnection, _ receiver: PeerConnection) async throws -> Void
    ) async throws {
        let receiver = try await startAcceptor()
        let sender = try await startDialer(try configuration())
        try await body(sender, receiver)
        await sender.abort()
        await receiver.abort()
    }

    private func nextOffer(to connection: PeerConnection) async throws -> FileOffer {
        for await offer in connection.incomingFiles { return offer }
        throw ChannelError(.closed, "no file was offered")
    }

    /// The code of the error with which the transfer ends; nil if it succeeds.
    private func errorCode(_ transfer: FileTransfer) async -> ChannelError.Code? {
        do throws(ChannelError) {
            try await transfer.finish()
            return nil
        } catch { return error.code }
    }

    /// Observes a transfer of `file.bin` until its end.
    private static func observe(_ transfer: FileTransfer, totalBytes: UInt64) async throws {
        var bytes: UInt64 = 0
        var last = FileTransfer.State.connecting
        for await progress in transfer.progress {
            #expect(progress.bytes >= bytes && progress.bytes <= progress.totalBytes)
            #expect(last != .done)
            (bytes, last) = (progress.bytes, progress.state)
        }
        #expect(last == .done && bytes == totalBytes)
        #expect(try await transfer.finish() == "file.bin")
        await transfer.waitUntilSettled()
    }

    @Test("a cancelled task stops waiting for a transfer, which goes on")
    func cancelledWait() async throws {
        try scratch.write("file.bin", [1, 2, 3])
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("file.bin"))
            let waiting = Task { await errorCode(outgoing) }
            waiting.cancel()
            #expect(await waiting.value == .cancelled)
            let incoming = try await nextOffer(to: receiver).accept(into: scratch.path("in"))
            #expect(try await incoming.finish() == "file.bin")
            #expect(try await outgoing.finish() == "file.bin")
        }
    }

    @Test("a file arrives, its progress does not go back, and 100 % comes last")
    func arrives() async throws {
        var generator = SeededGenerator(seed: 5)
        let content = generator.bytes(5_000_000)
        try scratch.write("file.bin", content)
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("file.bin"))
            let offer = try await nextOffer(to: receiver)
            #expect(offer.name == "file.bin" && offer.bytes == 5_000_000 && !offer.isFolder)
            let incoming = offer.accept(into: scratch.path("in"))
            async let sent: Void = Self.observe(outgoing, totalBytes: 5_000_000)
            async let received: Void = Self.observe(incoming, totalBytes: 5_000_000)
            try await sent
            try await received
            #expect(scratch.read("in/file.bin") == content)
            #expect(scratch.names(in: "in") == ["file.bin"])
        }
    }

    @Test(
        "if either side has cancelled the transfer of a tree, the tree arrives with the second transfer",
        arguments: [false, true])
    func goesOn(stopsReceiver: Bool) async throws {
        var generator = SeededGenerator(seed: 6)
        try scratch.makeFolder("tree/sub")
        for number in 0..<30 {
            try scratch.write("tree/sub/\(number)", generator.bytes(400_000))
        }
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("tree"))
            let incoming = try await nextOffer(to: receiver).accept(into: scratch.path("in"))
            let stopped = stopsReceiver ? incoming : outgoing
            // The transfer moves on only when tasks run on the loop. The task that cancels runs
            // there too, so it cancels before much more has moved, also on a busy machine.
            await Task(executorPreference: receiver.loop) {
                for await progress in incoming.progress where progress.bytes > 1_000_000 { break }
                stopped.cancel()
            }.value
            #expect(await errorCode(outgoing) == .cancelled)
            #expect(await errorCode(incoming) == .cancelled)
            #expect(scratch.names(in: "in") == [".blesec-partial"])
            let secondOutgoing = try await sender.sendFile(scratch.path("tree"))
            let offer = try await nextOffer(to: receiver)
            let secondIncoming = offer.accept(into: scratch.path("in"))
            #expect(try await secondIncoming.finish() == "tree")
            #expect(try await secondOutgoing.finish() == "tree")
            await secondIncoming.waitUntilSettled()
            for number in 0..<30 {
                #expect(scratch.read("in/tree/sub/\(number)") == scratch.read("tree/sub/\(number)"))
            }
            #expect(scratch.names(in: "in") == ["tree"])
        }
    }

    @Test(
        "if a file of which the receiver has a copy changes after the offer, the transfer fails, and the next transfer sends it",
        .timeLimit(.minutes(1)))
    func changesAfterOffer() async throws {
        try scratch.makeFolder("tree")
        for name in ["a", "b"] { try scratch.write("tree/\(name)", [1, 2, 3]) }
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            // The first transfer stores only `a`. In the second transfer, what was stored of `a` is
            // an old version.
            for (attempt, changed) in ["b", "a"].enumerated() {
                let outgoing = try await sender.sendFile(scratch.path("tree"))
                let offer = try await nextOffer(to: receiver)
                try scratch.write("tree/\(changed)", [UInt8](repeating: 4, count: 4 + attempt))
                let incoming = offer.accept(into: scratch.path("in"))
                #expect(await errorCode(outgoing) == .incomplete)
                #expect(outgoing.failures.map(\.path) == [changed])
                #expect(outgoing.failures.map(\.problem) == [.changed])
                #expect(await errorCode(incoming) != nil)
                #expect(scratch.names(in: "in") == [".blesec-partial"])
            }
            let outgoing = try await sender.sendFile(scratch.path("tree"))
            let incoming = try await nextOffer(to: receiver).accept(into: scratch.path("in"))
            #expect(try await incoming.finish() == "tree")
            #expect(try await outgoing.finish() == "tree")
            for name in ["a", "b"] {
                #expect(scratch.read("in/tree/\(name)") == scratch.read("tree/\(name)"))
            }
        }
    }

    @Test(
        "when the connection closes with sessionLost, an outgoing transfer ends with sessionLost",
        .timeLimit(.minutes(1)))
    func sessionLost() async throws {
        try scratch.write("file.bin", [1, 2, 3])
        let sender = try await startAcceptor()
        let receiverConfiguration = try configuration()
        let first = try await startDialer(receiverConfiguration)
        _ = try await first.send([1])
        await first.finish()
        #expect(try await sender.receive() == [1])
        #expect(try await sender.receive() == nil)
        let outgoing = try await sender.sendFile(scratch.path("file.bin"))
        await first.abort()
        // A peer that has ended the connection must not send more.
        let second = try await startDialer(receiverConfiguration)
        _ = try await second.send([2])
        #expect(await errorCode(outgoing) == .sessionLost)
        #expect(await sender.status.state == .closed)
        await second.abort()
        await sender.abort()
    }

    @Test(
        "while a new process of the receiver has not decided, an outgoing transfer is waiting",
        .timeLimit(.minutes(1)))
    func newReceiver() async throws {
        try scratch.write("file.bin", [1, 2, 3])
        let sender = try await startAcceptor()
        let receiverConfiguration = try configuration()
        let first = try await startDialer(receiverConfiguration)
        let outgoing = try await sender.sendFile(scratch.path("file.bin"))
        let stream = try #require(await first.acceptStream(labelled: FileFrame.label))
        // The offer, and then the file.
        for answers in [[FileFrame.accept], [.from(0), .received(1)]] {
            _ = try await stream.read()
            var frames: [UInt8] = []
            for answer in answers { answer.append(to: &frames) }
            try await stream.write(frames)
        }
        for await progress in outgoing.progress where progress.bytes > 0 { break }
        await first.abort()
        let second = try await startDialer(receiverConfiguration)
        let offer = try await nextOffer(to: second)
        #expect(outgoing.current.state == .waiting)
        await offer.refuse()
        #expect(await errorCode(outgoing) == .refused)
        await second.abort()
        await sender.abort()
    }

    /// Opens a stream, and offers a file of three bytes there.
    private func offerFile(
        over connection: PeerConnection
    ) async throws -> PeerConnection.Stream {
        let stream = try await connection.open(FileFrame.label, priority: .bulk)
        var frames: [UInt8] = []
        FileFrame.offer(
            FileFrame.Offer(
                id: [UInt8](repeating: 1, count: 16), version: [UInt8](repeating: 2, count: 16),
                isFolder: false, files: 1, bytes: 3, name: "file.bin")
        ).append(to: &frames)
        try await stream.write(frames)
        return stream
    }

    /// Waits until the receiver has accepted the offer of ``offerFile(over:)``, and sends the file.
    private func sendFile(on stream: PeerConnection.Stream) async throws {
        _ = try await stream.read()
        var frames: [UInt8] = []
        FileFrame.file(
            FileEntry(path: "file.bin", size: 3, seconds: 0, nanoseconds: 0, isExecutable: false)
        ).append(to: &frames)
        FileFrame.data([1, 2, 3]).append(to: &frames)
        FileFrame.end(sha256([1, 2, 3])).append(to: &frames)
        try await stream.write(frames)
    }

    private actor Counter {
        private(set) var count = 0
        func add() { count += 1 }
    }

    @Test(
        "the program learns once, and before the sender, that a file is stored, even if the sender does not end its direction",
        .timeLimit(.minutes(1)))
    func storedBeforeEnd() async throws {
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let stream = try await offerFile(over: sender)
            let calls = Counter()
            let incoming = try await nextOffer(to: receiver).accept(
                into: scratch.path("in"), FileOffer.Options()
            ) { await calls.add() }
            try await sendFile(on: stream)
            var stored: [UInt8] = []
            FileFrame.stored(1).append(to: &stored)
            var answers: [UInt8] = []
            while !answers.suffix(stored.count).elementsEqual(stored) {
                answers += try #require(try await stream.read())
            }
            #expect(await calls.count == 1)
            await stream.finish()
            while try await stream.read() != nil {}
            #expect(try await incoming.finish() == "file.bin")
            await incoming.waitUntilSettled()
            #expect(await calls.count == 1)
        }
    }

    @Test(
        "an incoming file is done when it is stored, even if the sender does not take the answer",
        .timeLimit(.minutes(1)))
    func unreadAnswer() async throws {
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let stream = try await offerFile(over: sender)
            let incoming = try await nextOffer(to: receiver).accept(into: scratch.path("in"))
            try await sendFile(on: stream)
            await stream.finish()
            #expect(try await incoming.finish() == "file.bin")
            #expect(incoming.current.state == .done)
            // The note about the file stays until the sender has taken the answer.
            #expect(scratch.names(in: "in") == [".blesec-partial", "file.bin"])
            while try await stream.read() != nil {}
            await incoming.waitUntilSettled()
            #expect(scratch.names(in: "in") == ["file.bin"])
        }
    }

    @Test("only the first answer to an offer counts: later answers do not disturb the transfer")
    func answeredTwice() async throws {
        let content = [UInt8](repeating: 7, count: 1_000_000)
        try scratch.write("file.bin", content)
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("file.bin"))
            let offer = try await nextOffer(to: receiver)
            let first = offer.accept(into: scratch.path("in"))
            let second = offer.accept(into: scratch.path("in"))
            await offer.refuse()
            await offer.cancel()
            let error = await #expect(throws: ChannelError.self) { try await second.finish() }
            #expect(error?.reason == "the offer was answered before")
            #expect(try await first.finish() == "file.bin")
            #expect(try await outgoing.finish() == "file.bin")
            #expect(scratch.read("in/file.bin") == content)
        }
    }

    @Test(
        "if either side gives up an unanswered offer, the offer is gone, and the sender's transfer ends as cancelled",
        .timeLimit(.minutes(1)), arguments: [false, true])
    func givenUp(stopsReceiver: Bool) async throws {
        try scratch.write("file.bin", [1, 2, 3])
        try await withConnections { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("file.bin"))
            let offer = try await nextOffer(to: receiver)
            if stopsReceiver { await offer.cancel() } else { outgoing.cancel() }
            await offer.waitUntilGone()
            #expect(await errorCode(outgoing) == .cancelled)
        }
    }

    @Test(
        "a program that stops taking offers while an offer arrives gives that offer up as cancelled",
        .timeLimit(.minutes(1)))
    func interruptedOffer() async throws {
        try await withConnections { sender, receiver in
            let taking = Task { for await _ in receiver.incomingFiles {} }
            let stream = try await sender.open(FileFrame.label, priority: .bulk)
            // An incomplete offer, longer than a stream's window: all of it can be written only
            // while the receiver reads.
            var bytes: [UInt8] = []
            FileFrame.appendHeader(.offer, FileFrame.longestBody, to: &bytes)
            bytes += [UInt8](repeating: 1, count: FileFrame.longestBody - 1)
            try await stream.write(bytes)
            taking.cancel()
            await taking.value
            await #expect(throws: ChannelError.self) {
                while try await stream.read() != nil {}
            }
            #expect(stream.resetCode == GiveUpReason.cancelled.rawValue)
        }
    }

    /// Sends `file.bin`, and returns the incoming transfer when it is settled.
    private func deliver(
        from sender: PeerConnection, to receiver: PeerConnection, in session: ReceivingSession
    ) async throws -> FileTransfer {
        let outgoing = try await sender.sendFile(scratch.path("file.bin"))
        let incoming = try await nextOffer(to: receiver, in: session).accept(
            into: scratch.path("in"))
        #expect(try await outgoing.finish() == "file.bin")
        #expect(try await incoming.finish() == "file.bin")
        await incoming.waitUntilSettled()
        return incoming
    }

    private func nextOffer(
        to connection: PeerConnection, in session: ReceivingSession
    ) async throws -> FileOffer {
        for await offer in connection.incomingFiles(in: session) { return offer }
        throw ChannelError(.closed, "no file was offered")
    }

    @Test(
        "if a session ends before everything is stored, what is stored is not received again in the next session",
        .timeLimit(.minutes(1)), arguments: ["refused", "cancelled", "given up"])
    func nextSession(end: String) async throws {
        try scratch.write("file.bin", [1, 2, 3])
        try scratch.write("other", [4])
        try scratch.makeFolder("in")
        try await withConnections { sender, receiver in
            let first = ReceivingSession()
            let new = try await deliver(from: sender, to: receiver, in: first)
            #expect(!new.wasStoredBefore)
            if end == "given up" {
                let stream = try await sender.open(FileFrame.label, priority: .bulk)
                await stream.giveUp(.cancelled)
                // Streams arrive in order: when this file has arrived, so has the stream above.
                _ = try await deliver(from: sender, to: receiver, in: first)
            } else {
                let other = try await sender.sendFile(scratch.path("other"))
                let offer = try await nextOffer(to: receiver, in: first)
                if end == "refused" { await offer.refuse() } else { other.cancel() }
                #expect(await errorCode(other) != nil)
            }
            await first.end()
            #expect(scratch.names(in: "in") == [".blesec-partial", "file.bin"])
            let second = ReceivingSession()
            let old = try await deliver(from: sender, to: receiver, in: second)
            #expect(old.wasStoredBefore)
            #expect(scratch.names(in: "in") == [".blesec-partial", "file.bin"])
            await second.end()
            #expect(scratch.names(in: "in") == ["file.bin"])
        }
    }

    @Test("if the receiver refuses a file, or its folder is missing, the sender's transfer fails")
    func refused() async throws {
        try scratch.write("file.bin", [1, 2, 3])
        try await withConnections { sender, receiver in
            let first = try await sender.sendFile(scratch.path("file.bin"))
            await (try nextOffer(to: receiver)).refuse(.declined, "not today")
            #expect(await errorCode(first) == .refused)
            let second = try await sender.sendFile(scratch.path("file.bin"))
            let incoming = try await nextOffer(to: receiver).accept(into: scratch.path("missing"))
            #expect(await errorCode(incoming) != nil)
            #expect(await errorCode(second) != nil)
            await #expect(throws: ChannelError.self) {
                _ = try await sender.sendFile(scratch.path("nothing"))
            }
        }
    }
}
