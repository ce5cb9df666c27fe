// Inside the package.
// (`Tests/Misuse/run` reads the first line, and compiles this file as part of the package.)
import BLESec
import BLESecNoise
import BLESecPrimitives

//: a handshake cannot be split twice
func splitTwice(_ state: consuming HandshakeState) throws {
    _ = try state.split()
    _ = try state.split()  // error: 'state' consumed more than once
}

//: a handshake cannot write a message after its split
func writeAfterSplit(_ state: consuming HandshakeState, _ output: inout OutputSpan<UInt8>) throws {
    _ = try state.split()
    try state.writeMessage(into: &output)  // error: 'state' used after consume
}

//: a handshake cannot be copied: a copy could use the ephemeral key again
func copyHandshake(_ state: consuming HandshakeState) -> Bool {
    let copy = state
    return copy.isMyTurn && state.isMyTurn  // error: 'state' used after consume
}

//: a borrowed handshake cannot be split
func splitBorrowed(_ state: borrowing HandshakeState) throws {
    _ = try state.split()  // error: 'state' is borrowed and cannot be consumed
}

//: a handshake that was replaced by a fallback cannot read a message
func readAfterFallback(
    _ attempt: consuming HandshakeState, _ name: ProtocolName, _ payload: inout OutputSpan<UInt8>
) throws {
    _ = try HandshakeState(fallback: name, after: attempt)
    try attempt.readMessage(Span(), payload: &payload)  // error: 'attempt' used after consume
}

//: a transport cannot encrypt after its conversion to a stateless transport
func encryptAfterConversion(
    _ transport: consuming TransportState, _ message: [UInt8], _ output: inout OutputSpan<UInt8>
) throws {
    _ = StatelessTransport(transport)
    try transport.encrypt(message.span, into: &output)  // error: 'transport' used after consume
}

//: a transport cannot be copied: a copy could use a nonce again
func copyTransport(_ transport: consuming TransportState) throws {
    var copy = transport
    try copy.rekeySend()
    try transport.rekeySend()  // error: 'transport' used after consume
}

//: the additional symmetric keys cannot be moved out of a borrowed transport
func takeAdditionalKeys(_ transport: borrowing TransportState) -> AdditionalSymmetricKeys {
    transport.additionalKeys  // error: cannot be consumed
}

//: a secret cannot be copied
func copySecret(_ secret: consuming SecretBytes) -> Int {
    let copy = secret
    return copy.count + secret.count  // error: 'secret' used after consume
}

//: a secret cannot be used after it became a pre-shared key
func useSecretOfPreSharedKey(_ secret: consuming SecretBytes) throws -> Bool {
    let key = try PreSharedKey(secret)
    return key === key && secret.count > 0  // error: 'secret' used after consume
}

//: a secret cannot be used after it became a private key
func useSecretOfKeyPair(_ secret: consuming SecretBytes) throws -> Int {
    let pair = try DHKeyPair(curve: .x25519, privateKey: secret)
    return pair.publicKey.count + secret.count  // error: 'secret' used after consume
}

//: an optional engine cannot be copied
func copyOptionalEngine<Engine: SecureEngine & ~Copyable>(_ engine: consuming Engine?) -> Bool {
    let copy = engine
    return copy == nil || engine == nil  // error: 'engine' used after consume
}

//: an engine cannot be used after it was consumed
func driveAfterConsume<Engine: SecureEngine & ~Copyable>(_ engine: consuming Engine) throws {
    _ = consume engine
    _ = try engine.nextHandshake()  // error: 'engine' used after consume
}

//: a handshake cannot be split by a closure that may run twice
func splitInEscapingClosure(_ state: consuming HandshakeState) -> () throws -> Void {
    { _ = try state.split() }  // error: cannot be consumed when captured by an escaping closure
}

//: an engine cannot be used in a detached task
func useEngineInDetachedTask<Engine: SecureEngine & ~Copyable>(_ engine: consuming Engine) {
    Task.detached { _ = engine.phase }  // error: sending
}
