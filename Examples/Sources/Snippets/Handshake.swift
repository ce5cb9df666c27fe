import BLESecNoise

/// The code of BLESecNoise.md in the documentation of BLESecNoise.
func greet() throws {
    let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
    var alice = try HandshakeState(
        protocolName: name, role: .initiator, localStatic: .generate(.x25519))
    var bob = try HandshakeState(
        protocolName: name, role: .responder, localStatic: .generate(.x25519))
    while !alice.isFinished {
        if alice.isMyTurn {
            let message = try [UInt8](capacity: 256) { try alice.writeMessage(into: &$0) }
            _ = try [UInt8](capacity: 256) { try bob.readMessage(message.span, payload: &$0) }
        } else {
            let message = try [UInt8](capacity: 256) { try bob.writeMessage(into: &$0) }
            _ = try [UInt8](capacity: 256) { try alice.readMessage(message.span, payload: &$0) }
        }
    }
    var session = try alice.split()
    var buffer: [UInt8] = Array("hello".utf8) + [UInt8](repeating: 0, count: 16)
    var span = buffer.mutableSpan
    try session.encrypt(inPlace: &span, count: 5)
}
