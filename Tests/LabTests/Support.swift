import Foundation
import Links
import Testing

@testable import L2CAP

/// What runs between the laboratory's controllers, one test at a time.
@Suite(.serialized, .timeLimit(.minutes(5))) enum Laboratory {}

/// A channel from hci0 to hci1 and what belongs to it. Both ends are on `loop`.
struct Channel: Sendable {
    let loop: EventLoop
    let listener: L2CAPListener
    let dialed: SocketLink
    let accepted: SocketLink
}

/// Runs `body` with a loop of its own, on that loop, and ends the loop.
func withLoop(_ body: @escaping @Sendable (EventLoop) async throws -> Void) async throws {
    let loop = EventLoop(name: "lab")
    let outcome = await Task(executorPreference: loop) { try await body(loop) }.result
    await loop.shutdown()
    try outcome.get()
}

/// Runs `body` with an open channel, and closes it.
func withChannel(
    receiveMTU: Int = L2CAPLink.maximumReceiveMTU,
    _ body: @escaping @Sendable (Channel) async throws -> Void
) async throws {
    try await withLoop { loop in
        let listener = try await L2CAPListener.listen(
            on: Adapter.named("hci1"), receiveMTU: receiveMTU, loop: loop)
        async let accepting = listener.accept()
        let dialed = try await L2CAPLink.dial(
            listener.localAddress, from: Adapter.named("hci0"),
            deadline: loop.now.advanced(by: .seconds(20)), loop: loop)
        let accepted = try #require(try await accepting as? SocketLink)
        do {
            try await body(
                Channel(loop: loop, listener: listener, dialed: dialed, accepted: accepted))
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

extension SocketLink {
    /// Sends an array in one call.
    func send(_ bytes: [UInt8]) throws(LinkError) -> Int {
        try send(bytes.span)
    }

    /// Receives once.
    func receive(_ capacity: Int = 65_536) throws(LinkError) -> (
        bytes: [UInt8], outcome: LinkReceive
    ) {
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: capacity) { buffer throws(LinkError) in
            outcome = try receive(into: &buffer)
        }
        return (bytes, outcome)
    }

    /// Sends everything, waiting for room.
    func sendAll(_ bytes: [UInt8], sdu: Int) async throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = try send(Array(rest.prefix(sdu)))
            rest = rest.dropFirst(taken)
            if taken == 0 { await Wait.writable(self) }
        }
    }

    /// Receives until so many bytes are there, or the end.
    func receiveAll(_ count: Int) async throws -> [UInt8] {
        var received: [UInt8] = []
        while received.count < count {
            let part = try receive()
            received += part.bytes
            switch part.outcome {
            case .bytes: continue
            case .wouldBlock: await Wait.readable(self)
            case .end: return received
            }
        }
        return received
    }
}

/// One wait for one event of a link. On the loop's thread.
final class Wait: LinkHandler {
    private let link: SocketLink
    private var waiter: CheckedContinuation<Void, Never>?

    private init(_ link: SocketLink) { self.link = link }

    static func readable(_ link: SocketLink) async {
        await Wait(link).wait { $0.wantsRead = true }
    }

    static func writable(_ link: SocketLink) async {
        await Wait(link).wait { $0.wantsWrite = true }
    }

    private func wait(_ begin: (SocketLink) -> Void) async {
        await withCheckedContinuation { waiter in
            self.waiter = waiter
            link.setHandler(self)
            begin(link)
        }
    }

    func linkIsReadable() { done() }
    func linkIsWritable() { done() }
    func linkDidHangUp() {}

    private func done() {
        link.wantsRead = false
        link.wantsWrite = false
        waiter.take()?.resume()
    }
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
