import BLESecChannelCore
import BLESecDiscovery
import BLESecTesting
import Foundation
import Testing

@testable import BLESec

@Suite("Observations")
struct ObservationTests {
    @Test(
        "each observer gets the newest state, and its sequence ends when no state can follow")
    func states() async {
        var observers = Observers<Int>()
        let earlyObservation = observers.add(beginningWith: 1)
        for state in 2...4 { observers.tell(state) }
        let lateObservation = observers.add(beginningWith: 4)
        observers.tell(5)
        observers.finish()
        #expect(await earlyObservation.reduce(into: []) { $0.append($1) } == [5])
        #expect(await lateObservation.reduce(into: []) { $0.append($1) } == [5])
        #expect(earlyObservation.dropped == 4 && lateObservation.dropped == 1)
        let endedObservation = observers.add(beginningWith: 5, isOver: true)
        #expect(await endedObservation.reduce(into: []) { $0.append($1) } == [5])
    }

    @Test("when more failures arrive than an observation holds, the oldest are dropped and counted")
    func failures() async {
        var observers = Observers<Int>()
        let observation = observers.add(capacity: 64)
        for number in 0..<100 { observers.tell(number) }
        observers.finish()
        #expect(observation.dropped == 36)
        #expect(await observation.reduce(into: []) { $0.append($1) } == Array(36..<100))
    }

    @Test("an observer that stops takes no value away from the others")
    func stoppedObserver() async {
        var observers = Observers<Int>()
        let remaining = observers.add(beginningWith: 0, capacity: 8)
        do {
            let task = Task { [stopping = observers.add(beginningWith: 0)] in
                for await _ in stopping {}
            }
            task.cancel()
            await task.value
        }
        observers.tell(1)
        observers.tell(2)
        observers.finish()
        #expect(await remaining.reduce(into: []) { $0.append($1) } == [0, 1, 2])
    }

    @Test("of 10,000 released observations at most two are stored, even if no further value comes")
    func releasedObservations() {
        var observers = Observers<Int>()
        for _ in 0..<10_000 { _ = observers.add(beginningWith: 1) }
        let count = observers.count
        #expect(count <= 2)
    }

    @Test("an observation ends when the observed object is released without having been closed")
    func droppedObject() async {
        func observe() -> Observation<Int> {
            var observers = Observers<Int>()
            return observers.add(beginningWith: 1)
        }
        #expect(await observe().reduce(into: []) { $0.append($1) } == [1])
    }

    @Test("a connection's states begin with the present one and end when the connection is closed")
    func connection() async throws {
        let fixture = try ChannelFixture()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        var states = await connection.states().makeAsyncIterator()
        #expect(await states.next()?.state == .searching)
        let pair = try await fixture.channels()
        #expect(await connection.offer(pair.acceptor))
        #expect(await states.next()?.state == .connected)
        await connection.abort()
        #expect(await states.next()?.state == .closed)
        #expect(await states.next() == nil)
        await pair.dialer.abort()
        await fixture.finish()
    }

    @Test(
        "a listener's channels and failed peers are two sequences, which end with the listener")
    func listener() async throws {
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let pinned = try PinnedPeers()
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"),
            configuration: try pinned.configuration(.acceptor))
        let failures = await listener.failures()
        var channels = listener.channels.makeAsyncIterator()
        let unknownDialer = try PinnedPeers().configuration(.dialer)
        await #expect(throws: ChannelError.self) {
            try await SecureChannel.dial(listener.localEndpoint, configuration: unknownDialer)
        }
        let dialer = try await SecureChannel.dial(
            listener.localEndpoint, configuration: try pinned.configuration(.dialer))
        let channel = try #require(try await channels.next())
        // A message may be a string, its UTF-8 bytes, `Data` or a slice of an array.
        try await dialer.send("text")
        try await dialer.send("text".utf8)
        try await dialer.send(Data("text".utf8))
        async let delivered = dialer.deliver(Array("text".utf8)[...])
        for _ in 0..<4 { #expect(try await channel.receive() == Array("text".utf8)) }
        #expect(try await delivered == .delivered)
        await listener.close()
        #expect(try await channels.next() == nil)
        var reported: [PeerFailure] = []
        for await failure in failures { reported.append(failure) }
        #expect(reported.count == 1 && failures.dropped == 0)
        await dialer.abort()
        await channel.abort()
    }

    @Test("endpoints and UUIDs have a text form and a JSON form, and other text is refused")
    func texts() throws {
        for text in ["unix:/path", "l2cap:any", "l2cap:AA:BB:CC:DD:EE:FF/0x80"] {
            let endpoint = try Endpoint(parsing: text)
            #expect(endpoint.description == text && Endpoint(text) == endpoint)
            let json = try JSONEncoder().encode([endpoint])
            #expect(try JSONDecoder().decode([Endpoint].self, from: json) == [endpoint])
        }
        let service = BluetoothUUID.blesec
        #expect(try BluetoothUUID(parsing: service.description) == service)
        let json = try JSONEncoder().encode([service])
        #expect(try JSONDecoder().decode([BluetoothUUID].self, from: json) == [service])
        let wrong = try JSONEncoder().encode(["nowhere"])
        #expect(throws: ChannelError(.configuration, "")) { try Endpoint(parsing: "nowhere") }
        #expect(throws: ChannelError(.configuration, "")) { try BluetoothUUID(parsing: "nowhere") }
        #expect(Endpoint("nowhere") == nil && BluetoothUUID("nowhere") == nil)
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode([Endpoint].self, from: wrong)
        }
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode([BluetoothUUID].self, from: wrong)
        }
    }
}
