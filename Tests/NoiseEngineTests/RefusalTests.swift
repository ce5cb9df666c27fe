import BLESecChannelCore
import BLESecNoiseEngine
import Testing

@Suite("How a refusal reaches the peer")
struct RefusalTests {
    @Test("a dialer that refuses says nothing, since its last message would show its key")
    func dialer() throws {
        var pair = try EnginePair("Noise_XX_25519_ChaChaPoly_SHA256")
        try pair.dialerSpeaks()
        try pair.acceptorSpeaks()
        #expect(pair.dialer.refuse() == .silent)
    }

    @Test("an XX acceptor has shown its key already, and refuses by a record")
    func acceptor() throws {
        var pair = try EnginePair("Noise_XX_25519_ChaChaPoly_SHA256")
        try pair.dialerSpeaks()
        try pair.acceptorSpeaks()
        try pair.dialer.admit()
        try pair.dialerSpeaks()
        #expect(pair.acceptor.refuse() == .byRecord)
    }

    @Test("an IK acceptor, whose key the dialer knows, refuses by a record")
    func known() throws {
        var pair = try EnginePair("Noise_IK_25519_ChaChaPoly_SHA256")
        try pair.dialerSpeaks()
        #expect(pair.acceptor.refuse() == .byRecord)
    }

    @Test("an IX acceptor, whose key is still to be sent, says nothing")
    func unsent() throws {
        var pair = try EnginePair("Noise_IX_25519_ChaChaPoly_SHA256")
        try pair.dialerSpeaks()
        #expect(pair.acceptor.refuse() == .silent)
    }
}
