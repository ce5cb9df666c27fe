import BLESec
import BLESecChannelCore
import BLESecFiles
import BLESecPrimitives
import Testing

/// Files between two connections in this process.
@Suite("Files: two connections")
struct FileConnectionTests {
    private let place = TemporaryFolder()

    /// Connects two sides, runs `body` with them, and closes both.
    private func connected(
        _ body: (_ sender: PeerConnection, _ receiver: PeerConnection) async throws -> Void
    ) async throws {
        var configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        configuration.carriesDelivery = true
        configuration.allowsExposedIdentity = true
        var other = configuration
        other.identity = try .generate()
        let endpoint = try Endpoint(parsing: "unix:\(place.path("socket"))")
        let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
        let receiver = await PeerConnection.start(
            .accepting(from: listener), delivery: .exactlyOnce())
        let sender = await PeerConnection.start(
            .dialing(endpoint, configuration: other), delivery: .exactlyOnce())
        try await body(sender, receiver)
        await sender.abort()
        await receiver.abort()
    }

    private func next(_ connection: PeerConnection) async throws -> FileOffer {
        for await offer in connection.incomingFiles { return offer }
        throw ChannelError(.closed, "no file was offered")
    }

    private func code(_ transfer: FileTransfer) async -> ChannelError.Code? {
        do throws(ChannelError) {
            try await transfer.finish()
            return nil
        } catch { return error.code }
    }

    @Test("a file arrives, its progress does not go back, and 100 % comes last")
    func arrives() async throws {
        var generator = SeededGenerator(seed: 5)
        let content = generator.bytes(5_000_000)
        try place.write("file.bin", content)
        try place.makeFolder("in")
        try await connected { sender, receiver in
            let outgoing = try await sender.sendFile(place.path("file.bin"))
            let offer = try await next(receiver)
            #expect(offer.name == "file.bin" && offer.bytes == 5_000_000 && !offer.isFolder)
            let incoming = offer.accept(into: place.path("in"))
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
            }
            #expect(place.read("in/file.bin") == content)
            #expect(place.names(in: "in") == ["file.bin"])
        }
    }

    @Test("a tree that was stopped on either side goes on", arguments: [false, true])
    func goesOn(stopsReceiver: Bool) async throws {
        var generator = SeededGenerator(seed: 6)
        try place.makeFolder("tree/sub")
        for number in 0..<30 {
            try place.write("tree/sub/\(number)", generator.bytes(400_000))
        }
        try place.makeFolder("in")
        try await connected { sender, receiver in
            let outgoing = try await sender.sendFile(place.path("tree"))
            let incoming = try await next(receiver).accept(into: place.path("in"))
            for await progress in incoming.progress where progress.bytes > 1_000_000 { break }
            (stopsReceiver ? incoming : outgoing).cancel()
            #expect(await code(outgoing) == .cancelled)
            #expect(await code(incoming) == .cancelled)
            #expect(place.names(in: "in") == [".blesec-partial"])
            let again = try await sender.sendFile(place.path("tree"))
            let offer = try await next(receiver)
            let second = offer.accept(into: place.path("in"))
            #expect(try await second.finish() == "tree")
            #expect(try await again.finish() == "tree")
            for number in 0..<30 {
                #expect(place.read("in/tree/sub/\(number)") == place.read("tree/sub/\(number)"))
            }
            #expect(place.names(in: "in") == ["tree"])
        }
    }

    @Test("a file that is refused, or has no folder, throws the reason on the sender's side")
    func refused() async throws {
        try place.write("file.bin", [1, 2, 3])
        try await connected { sender, receiver in
            let first = try await sender.sendFile(place.path("file.bin"))
            await (try next(receiver)).refuse(.declined, "not today")
            #expect(await code(first) == .refused)
            let second = try await sender.sendFile(place.path("file.bin"))
            let incoming = try await next(receiver).accept(into: place.path("missing"))
            #expect(await code(incoming) != nil)
            #expect(await code(second) != nil)
            await #expect(throws: ChannelError.self) {
                _ = try await sender.sendFile(place.path("nothing"))
            }
        }
    }
}
