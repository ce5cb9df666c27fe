import BLESecChannelCore
import BLESecLinks
import Glibc
import Testing

@testable import BLESec

@Suite("What unauthenticated peers leave behind")
struct ListenerResourceTests {
    /// Runs in its own process, where no other test opens descriptors or takes memory.
    @Test("a flood of unauthenticated peers leaves neither descriptors nor memory behind")
    func flood() async {
        await #expect(processExitsWith: .success) {
            let pinned = try PinnedPeers()
            let loop = EventLoop(name: "flood")
            let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
            let address = try UnixAddress(path: path)
            let listener = try await SecureListener.listen(
                on: Endpoint(address), configuration: pinned.configuration(.acceptor), loop: loop)
            var uses: [ResourceUse] = []
            for _ in 0..<4 {
                try await Self.flood(listener, address, pinned)
                uses.append(ResourceUse.now)
            }
            // The first two floods fill pools and caches. The other two open 200 links. A handshake
            // that was left behind would take 10 KiB, so 200 of them would exceed the 1 MiB
            // allowed.
            #expect(uses[3].descriptors == uses[1].descriptors)
            #expect(uses[3].memory <= uses[1].memory + 1 << 20)
            await listener.close()
            await loop.shutdown()
        }
    }

    /// The number of descriptors and the memory that the process uses at one moment.
    struct ResourceUse {
        let descriptors: Int
        /// Resident bytes.
        let memory: Int

        static var now: ResourceUse {
            var descriptors = 0
            if let folder = unsafe opendir("/proc/self/fd") {
                while unsafe readdir(folder) != nil { descriptors += 1 }
                _ = unsafe closedir(folder)
            }
            return ResourceUse(descriptors: descriptors, memory: residentPages * Int(getpagesize()))
        }

        /// The number of resident pages: the second number of `/proc/self/statm`.
        private static var residentPages: Int {
            let file = unsafe open("/proc/self/statm", O_RDONLY)
            defer { close(file) }
            var text = [UInt8](repeating: 0, count: 100)
            let count = max(0, unsafe read(file, &text, text.count))
            let fields = text.prefix(count).split(separator: UInt8(ascii: " "))
            return fields.count > 1 ? Int(String(decoding: fields[1], as: UTF8.self)) ?? 0 : 0
        }
    }

    private static func flood(
        _ listener: SecureListener, _ address: UnixAddress, _ pinned: PinnedPeers
    ) async throws {
        let loop = listener.loop
        var peers: [any Link] = []
        let greetings = [
            [], Array(ListenerTests.hello.prefix(10)), ListenerTests.hello,
            ListenerTests.firstFlight, [1, 2, 3],
        ]
        for index in 0..<100 {
            let link = try await SocketLink.dial(address, deadline: .distantFuture, loop: loop)
            let greeting = greetings[index % greetings.count]
            await loop.run { if !greeting.isEmpty { _ = try? link.send(greeting.span) } }
            peers.append(link)
        }
        async let dialing = SecureChannel.dial(
            listener.localEndpoint, configuration: pinned.configuration(.dialer), loop: loop)
        let accepted = try await listener.accept()
        let dialed = try await dialing
        async let closed: Void = accepted.close()
        try await dialed.close()
        try await closed
        for link in peers { await loop.run { link.close() } }
        while await listener.load.handshakes > 0 { await loop.settle() }
    }
}
