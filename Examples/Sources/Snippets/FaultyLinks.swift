import BLESec
import BLESecTesting

/// The code of FaultyLinks.md in the documentation of BLESecTesting.
public func loseAMessage() async throws -> (delivery: ChannelError.Code?, close: ChannelError.Code?)
{
    let clock = ManualClock()
    let loop = EventLoop(name: "test", clock: clock.loopClock)
    let (alice, bob) = (try IdentityKey.generate(), try IdentityKey.generate())
    let (link, other) = await loop.run { [loop] in
        let (first, second) = MemoryLink.pair(loop: loop)
        return (FaultyLink(first), second)
    }
    async let accepted = SecureChannel.open(
        over: other, role: .acceptor,
        configuration: .init(identity: bob, trust: .pinned(alice.fingerprint)))
    let dialer = try await SecureChannel.open(
        over: link, role: .dialer,
        configuration: .init(identity: alice, trust: .pinned(bob.fingerprint)))
    let acceptor = try await accepted
    await loop.run { link.hold() }  // nothing that the dialer sends from now on arrives
    let delivery = Task(executorPreference: loop) {
        await code { _ = try await dialer.deliver("ring the bell", within: .seconds(5)) }
    }
    await clock.advance(by: .seconds(5))
    let lost = await delivery.value  // timedOut: the dialer cannot know whether it arrived
    await loop.run { link.cut() }
    return (lost, await code { try await acceptor.close() })  // truncated
}

/// The code of the error that `body` throws; nil if it throws none.
private func code(_ body: () async throws -> Void) async -> ChannelError.Code? {
    do {
        try await body()
        return nil
    } catch {
        return (error as? ChannelError)?.code
    }
}
