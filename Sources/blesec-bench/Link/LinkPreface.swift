internal import BLESec

/// The first bytes of a link to `blesec-bench serve`. They select the engine, so one listener can
/// serve every engine.
enum LinkPreface {
    private static let magic = Array("blesec-bench/1 ".utf8)

    /// Sends the name of the engine to use.
    static func send(_ engine: EngineChoice, over link: any Link) async throws {
        let name = Array(engine.name.utf8)
        var rest = (magic + [UInt8(name.count)] + name)[...]
        while !rest.isEmpty {
            let sent = try link.send(Array(rest).span)
            rest = rest.dropFirst(sent)
            if sent == 0 { await LinkEvent.waitUntilWritable(link) }
        }
    }

    /// How long a peer may take to send the preface.
    private static let timeout = Duration.seconds(15)

    static func receive(from link: any Link) async throws -> EngineChoice {
        let deadline = link.loop.now.advanced(by: timeout)
        let start = try await read(magic.count + 1, from: link, until: deadline)
        guard start.starts(with: magic), let length = start.last else { throw BenchError.notABench }
        let name = try await read(Int(length), from: link, until: deadline)
        return try EngineChoice(String(decoding: name, as: UTF8.self))
    }

    private static func read(
        _ count: Int, from link: any Link, until deadline: MonotonicTime
    ) async throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            guard link.loop.now < deadline else { throw BenchError.notABench }
            var result = LinkReceive.wouldBlock
            bytes += try [UInt8](capacity: count - bytes.count) { space throws(LinkError) in
                result = try link.receive(into: &space)
            }
            switch result {
            case .bytes: continue
            case .wouldBlock: await LinkEvent.waitUntilReadable(link, until: deadline)
            case .end: throw BenchError.notABench
            }
        }
        return bytes
    }
}

/// Waits for one event of a link that has no other user yet. Use it on the link's loop.
final class LinkEvent: LinkHandler, @unchecked Sendable {
    // Sendable because it is used on the link's loop only.

    private let link: any Link
    private var waiter: CheckedContinuation<Void, Never>?

    private init(_ link: any Link) { self.link = link }

    /// Waits until the link is readable or hangs up, or until the deadline.
    static func waitUntilReadable(_ link: any Link, until deadline: MonotonicTime) async {
        let event = LinkEvent(link)
        let alarm = Task(executorPreference: link.loop) {
            guard (try? await link.loop.sleep(until: deadline)) != nil else { return }
            event.linkIsReadable()
        }
        await event.wait { $0.wantsRead = true }
        alarm.cancel()
    }

    static func waitUntilWritable(_ link: any Link) async {
        await LinkEvent(link).wait { $0.wantsWrite = true }
    }

    private func wait(_ begin: (any Link) -> Void) async {
        await withCheckedContinuation { waiter in
            self.waiter = waiter
            link.setHandler(self)
            begin(link)
        }
        link.wantsRead = false
        link.wantsWrite = false
        link.setHandler(nil)
    }

    func linkIsReadable() { waiter.take()?.resume() }
    func linkIsWritable() { waiter.take()?.resume() }
    func linkDidHangUp() { waiter.take()?.resume() }
}
