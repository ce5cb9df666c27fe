import BLESec
import BLESecToolKit
import TestSupport
import Testing

@testable import blesec

@Suite struct ChannelSessionTests {
    private let folder = ScratchFolder()

    @Test(
        "input that a dead peer cannot take is left for the next peer", .timeLimit(.minutes(1)))
    func deadPeer() async throws {
        let endpoint = try Endpoint(parsing: "unix:\(folder.file("socket"))")
        let (listenerKey, dialerKey) = (try IdentityKey.generate(), try IdentityKey.generate())
        let listener = try await SecureListener.listen(
            on: endpoint,
            configuration: ChannelConfiguration(
                identity: listenerKey, trust: .pinned(dialerKey.fingerprint)))
        let peer = try await SecureChannel.dial(
            endpoint,
            configuration: ChannelConfiguration(
                identity: dialerKey, trust: .pinned(listenerKey.fingerprint)))
        let channel = try await listener.accept()
        await peer.abort()
        await #expect(throws: ChannelError.self) { try await channel.waitUntilOver() }
        let input = Array("for the next peer".utf8)
        // The session's first read returns these bytes at once.
        StandardInput.shared.putBack(input)
        let session = ChannelSession(
            channel: channel, isDirect: false, keepsOutput: true, interruption: Interruption())
        await #expect(throws: ChannelError.self) { try await session.run() }
        #expect(try await StandardInput.shared.next() == input)
        await listener.close()
    }
}
