import BLESecChannelCore
import BLESecNoiseEngine
import Testing

@Suite("How a refusal reaches the peer")
struct RefusalTests {
    @Test("an XX dialer that refuses sends nothing, since its last message would show its key")
    func dialer() throws {
        var pair = try EnginePair("Noise_XX_25519_ChaChaPoly_SHA256")
        try pair.passDialerMessage()
        try pair.passAcceptorMessage()
        #expect(pair.dialer.refuse() == .silent)
    }

    @Test("an XX acceptor has already shown its key, and refuses with a record")
    func acceptor() throws {
        var pair = try EnginePair("Noise_XX_25519_ChaChaPoly_SHA256")
        try pair.passDialerMessage()
        try pair.passAcceptorMessage()
        try pair.dialer.admit()
        try pair.passDialerMessage()
        #expect(pair.acceptor.refuse() == .byRecord)
    }

    @Test("an IK acceptor, whose key the dialer knows, refuses with a record")
    func known() throws {
        var pair = try EnginePair("Noise_IK_25519_ChaChaPoly_SHA256")
        try pair.passDialerMessage()
        #expect(pair.acceptor.refuse() == .byRecord)
    }

    @Test("an IX acceptor that has not sent its key yet refuses without sending anything")
    func unsent() throws {
        var pair = try EnginePair("Noise_IX_25519_ChaChaPoly_SHA256")
        try pair.passDialerMessage()
        #expect(pair.acceptor.refuse() == .silent)
    }
}
