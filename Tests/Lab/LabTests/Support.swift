import BLESecLinks
import Foundation
import Testing

@testable import BLESecL2CAP

/// Tests between the laboratory's controllers. The tests run one at a time.
@Suite(.serialized, .timeLimit(.minutes(5))) enum Laboratory {}

/// An L2CAP channel from hci0 to hci1, and its listener. Both ends are on `loop`.
struct L2CAPConnection: Sendable {
    let loop: EventLoop
    let listener: L2CAPListener
    let dialed: SocketLink
    let accepted: SocketLink
}

/// Creates a loop, runs `body` on it, and ends the loop.
func withLoop(_ body: @escaping @Sendable (EventLoop) async throws -> Void) async throws {
    let loop = EventLoop(name: "lab")
    let outcome = await Task(executorPreference: loop) { try await body(loop) }.result
    await loop.shutdown()
    try outcome.get()
}

/// Runs `body` with an open channel from hci0 to hci1, and then closes the channel.
func withChannel(
    receiveMTU: Int = L2CAPSocket.maximumReceiveMTU,
    _ body: @escaping @Sendable (L2CAPConnection) async throws -> Void
) async throws {
    try await withLoop { loop in
        let listener = try L2CAPListener.listen(
            on: Adapter.named("hci1"), receiveMTU: receiveMTU, loop: loop)
        async let accepting = listener.accept()
        let dialed = try await SocketLink.dial(
            listener.localAddress, from: Adapter.named("hci0"),
            deadline: loop.now.advanced(by: .seconds(20)), loop: loop)
        let accepted = try #require(try await accepting as? SocketLink)
        do {
            try await body(
                L2CAPConnection(loop: loop, listener: listener, dialed: dialed, accepted: accepted))
        } catch {
            dialed.close()
            accepted.close()
            await listener.close()
            throw error
        }
        dialed.close()
        accepted.close()
        await listener.close()
    }
}

/// Runs `body` with an open channel from hci0 to a socket of hci1 that gives more credits than this
/// package's sockets give, and then closes the channel.
///
/// The peer's MTU is 65,535, so its first credits are for 65,535 bytes, enough to fill the sender's
/// queue. A smaller MTU gives fewer credits, and without credits the sender's kernel takes nothing.
func withGenerousPeer(
    maximumSDU: Int, _ body: @escaping @Sendable (SocketLink, SocketLink) async throws -> Void
) async throws {
    try await withLoop { loop in
        let adapter = try Adapter.named("hci1")
        let descriptor = try L2CAPSocket.open(
            boundTo: L2CAPSocketAddress(device: adapter.address, type: .public, psm: 0),
            receiveMTU: 65_535)
        try Socket.listen(descriptor, backlog: 1)
        let bound = try #require(L2CAPSocketAddress(Socket.localAddress(descriptor)))
        let listener = SocketListener(
            owning: descriptor, name: "generous peer", loop: loop,
            traits: { (descriptor) throws(LinkError) in
                do throws(SystemError) {
                    try L2CAPSocket.setBuffers(descriptor)
                    return try L2CAPSocket.traits(descriptor, maximumSDU: maximumSDU)
                } catch {
                    throw LinkError(error, cannot: "accept a channel")
                }
            })
        async let accepting = listener.accept()
        let dialed = try await SocketLink.dial(
            L2CAPAddress(device: adapter.address, psm: PSM(Int(bound.psm))),
            from: Adapter.named("hci0"), deadline: loop.now.advanced(by: .seconds(20)),
            maximumSDU: maximumSDU, loop: loop)
        let accepted = try await accepting
        let outcome = await Task(executorPreference: loop) { try await body(dialed, accepted) }
            .result
        dialed.close()
        accepted.close()
        await listener.close()
        try outcome.get()
    }
}

extension SocketLink {
    /// Sends an array in one call.
    func send(_ bytes: [UInt8]) throws(LinkError) -> Int { try send(bytes.span) }

    /// Receives at most `capacity` bytes in one call.
    func receive(_ capacity: Int = 65_536) throws(LinkError) -> (
        bytes: [UInt8], outcome: LinkReceive
    ) {
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: capacity) { buffer throws(LinkError) in
            outcome = try receive(into: &buffer)
        }
        return (bytes, outcome)
    }

    /// Sends `bytes` in SDUs of at most `sdu` bytes, and receives meanwhile. Returns the received
    /// bytes when everything is sent and at least `count` bytes have come, or at the end of the
    /// link. Throws if the link fails.
    @discardableResult
    func exchange(
        sending bytes: [UInt8] = [], sdu: Int = L2CAPSocket.maximumSDU, receiving count: Int = 0
    ) async throws -> [UInt8] {
        let transfer = Transfer(self, bytes, sdu, count)
        return try await transfer.run()
    }
}

/// One call of ``SocketLink/exchange(sending:sdu:receiving:)``. Used on the loop's thread only.
private final class Transfer: LinkHandler {
    private let link: SocketLink
    private var outgoing: ArraySlice<UInt8>
    private let sdu: Int
    private let count: Int
    private var received: [UInt8] = []
    private var hasEnded = false
    private var failure: LinkError?
    private var waiter: CheckedContinuation<Void, Never>?

    init(_ link: SocketLink, _ bytes: [UInt8], _ sdu: Int, _ count: Int) {
        (self.link, self.sdu, self.count) = (link, sdu, count)
        outgoing = bytes[...]
    }

    func run() async throws -> [UInt8] {
        link.setHandler(self)
        link.wantsRead = received.count < count
        linkIsWritable()
        if !isDone { await withCheckedContinuation { waiter = $0 } }
        if let failure { throw failure }
        return received
    }

    func linkIsReadable() {
        attempt { () throws(LinkError) in
            while received.count < count {
                let part = try link.receive()
                received += part.bytes
                if part.outcome == .end { hasEnded = true }
                if part.outcome != .bytes { break }
            }
        }
        if received.count >= count { link.wantsRead = false }
        resumeIfDone()
    }

    func linkIsWritable() {
        attempt { () throws(LinkError) in
            while !outgoing.isEmpty {
                let taken = try link.send(Array(outgoing.prefix(sdu)))
                if taken == 0 { break }
                outgoing = outgoing.dropFirst(taken)
            }
        }
        link.wantsWrite = !outgoing.isEmpty
        resumeIfDone()
    }

    func linkDidHangUp() {}

    private var isDone: Bool {
        failure != nil || hasEnded || (outgoing.isEmpty && received.count >= count)
    }

    private func attempt(_ body: () throws(LinkError) -> Void) {
        do throws(LinkError) { try body() } catch { failure = error }
    }

    private func resumeIfDone() { if isDone { waiter.take()?.resume() } }
}

/// Runs a program and returns its exit status.
@discardableResult
func run(_ program: String, _ arguments: String...) throws -> Int32 {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = arguments
    try process.run()
    process.waitUntilExit()
    return process.terminationStatus
}
