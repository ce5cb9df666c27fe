import BLESec
import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESecFiles

/// Files between two connections in this process.
@Suite("Files: two connections")
struct FileConnectionTests {
    private let scratch = TemporaryFolder()

    /// Connects two sides, runs `body` with them, and aborts both.
    private func connected(
        _ body: (_ sender: PeerConnection, _ receiver: PeerConnection) async throws -> Void
    ) async throws {
        var configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        configuration.carriesDelivery = true
        configuration.allowsExposedIdentity = true
        var senderConfiguration = configuration
        senderConfiguration.identity = try .generate()
        let endpoint = try Endpoint(parsing: "unix:\(scratch.path("socket"))")
        let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
        let receiver = await PeerConnection.start(
            .accepting(from: listener), delivery: .exactlyOnce())
        let sender = await PeerConnection.start(
            .dialing(endpoint, configuration: senderConfiguration), delivery: .exactlyOnce())
        try await body(sender, receiver)
        await sender.abort()
        await receiver.abort()
    }

    private func next(_ connection: PeerConnection) async throws -> FileOffer {
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

    @Test("a file arrives, its progress does not go back, and 100 % comes last")
    func arrives() async throws {
        var generator = SeededGenerator(seed: 5)
        let content = generator.bytes(5_000_000)
        try scratch.write("file.bin", content)
        try scratch.makeFolder("in")
        try await connected { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("file.bin"))
            let offer = try await next(receiver)
            #expect(offer.name == "file.bin" && offer.bytes == 5_000_000 && !offer.isFolder)
            let incoming = offer.accept(into: scratch.path("in"))
            for transfer in [outgoing, incoming] {
                var bytes: UInt64 = 0
                var last = FileTransfer.State.connecting
                for await progress in transfer.progress {
                    #expect(progress.bytes >= bytes && progress.bytes <= progress.totalBytes)
                    #expect(last != .done)
                    (bytes, last) = (progress.bytes, progress.state)
                }
                #expect(last == .done && bytes == 5_000_000)
                #expect(try await transfer.finish() == "file.bin")
                await transfer.waitUntilSettled()
            }
            #expect(scratch.read("in/file.bin") == content)
            #expect(scratch.names(in: "in") == ["file.bin"])
        }
    }

    @Test(
        "a tree whose transfer either side has cancelled arrives at the second attempt",
        arguments: [false, true])
    func goesOn(stopsReceiver: Bool) async throws {
        var generator = SeededGenerator(seed: 6)
        try scratch.makeFolder("tree/sub")
        for number in 0..<30 {
            try scratch.write("tree/sub/\(number)", generator.bytes(400_000))
        }
        try scratch.makeFolder("in")
        try await connected { sender, receiver in
            let outgoing = try await sender.sendFile(scratch.path("tree"))
            let incoming = try await next(receiver).accept(into: scratch.path("in"))
            for await progress in incoming.progress where progress.bytes > 1_000_000 { break }
            (stopsReceiver ? incoming : outgoing).cancel()
            #expect(await errorCode(outgoing) == .cancelled)
            #expect(await errorCode(incoming) == .cancelled)
            #expect(scratch.names(in: "in") == [".blesec-partial"])
            let secondOutgoing = try await sender.sendFile(scratch.path("tree"))
            let offer = try await next(receiver)
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
        "an incoming file is done when it is stored, even if the sender does not take the answer",
        .timeLimit(.minutes(1)))
    func unread() async throws {
        try scratch.makeFolder("in")
        try await connected { sender, receiver in
            let stream = try await sender.open(FileFrame.label, priority: .bulk)
            var frames: [UInt8] = []
            FileFrame.offer(
                FileFrame.Offer(
                    id: [UInt8](repeating: 1, count: 16), version: [UInt8](repeating: 2, count: 16),
                    isFolder: false, files: 1, bytes: 3, name: "file.bin")
            ).append(to: &frames)
            try await stream.write(frames)
            let incoming = try await next(receiver).accept(into: scratch.path("in"))
            // The receiver has accepted the offer.
            _ = try await stream.read()
            frames = []
            FileFrame.file(
                FileEntry(
                    path: "file.bin", size: 3, seconds: 0, nanoseconds: 0, isExecutable: false)
            ).append(to: &frames)
            FileFrame.data([1, 2, 3]).append(to: &frames)
            FileFrame.end(sha256([1, 2, 3])).append(to: &frames)
            try await stream.write(frames)
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

    @Test("if the receiver refuses a file, or its folder is missing, the sender's transfer fails")
    func refused() async throws {
        try scratch.write("file.bin", [1, 2, 3])
        try await connected { sender, receiver in
            let first = try await sender.sendFile(scratch.path("file.bin"))
            await (try next(receiver)).refuse(.declined, "not today")
            #expect(await errorCode(first) == .refused)
            let second = try await sender.sendFile(scratch.path("file.bin"))
            let incoming = try await next(receiver).accept(into: scratch.path("missing"))
            #expect(await errorCode(incoming) != nil)
            #expect(await errorCode(second) != nil)
            await #expect(throws: ChannelError.self) {
                _ = try await sender.sendFile(scratch.path("nothing"))
            }
        }
    }
}
