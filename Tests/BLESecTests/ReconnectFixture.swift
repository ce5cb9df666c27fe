import BLESecChannelCore
import BLESecLinks
import TestSupport

@testable import BLESec

/// The identities of two peers and the path of a Unix socket, for tests in which connections
/// between the peers lose their links.
struct ReconnectFixture {
    let pinned: PinnedPeers
    let endpoint: Endpoint
    private let folder = ScratchFolder()

    init() throws {
        pinned = try PinnedPeers()
        endpoint = try Endpoint(parsing: "unix:\(folder.file("socket"))")
    }

    /// A policy with short waits between attempts.
    static var rules: ReconnectPolicy {
        var rules = ReconnectPolicy()
        rules.backoff = Backoff(first: .milliseconds(20), most: .milliseconds(100))
        return rules
    }

    /// Whether the channels are for connections whose messages arrive exactly once.
    var carriesDelivery = false

    func configuration(_ role: ChannelRole) throws -> ChannelConfiguration {
        var configuration = try pinned.configuration(role)
        configuration.carriesDelivery = carriesDelivery
        return configuration
    }

    func listen(channelLoops: [EventLoop] = []) async throws -> SecureListener {
        try await SecureListener.listen(
            on: endpoint, configuration: configuration(.acceptor), channelLoops: channelLoops)
    }

    func dialing(
        _ rules: ReconnectPolicy = rules, _ delivery: PeerConnection.Guarantee = .atMostOnce
    ) async throws -> PeerConnection {
        await PeerConnection.start(
            .dialing(endpoint, configuration: try configuration(.dialer)),
            to: PeerKey(fingerprint: pinned.acceptor.fingerprint), rules: rules, delivery: delivery)
    }

    func accepting(
        from listener: SecureListener, _ rules: ReconnectPolicy = rules,
        _ delivery: PeerConnection.Guarantee = .atMostOnce
    ) async -> PeerConnection {
        await PeerConnection.start(.accepting(from: listener), rules: rules, delivery: delivery)
    }
}

extension PeerConnection {
    /// Ends the present link without telling the peer, as when radio contact is lost.
    func cut() async {
        let channel = current
        await channel?.abort()
    }

    /// Waits until the connection reports `state`, or has been closed.
    func wait(for state: ConnectionState) async {
        for await status in states() where status.state == state { return }
    }
}
