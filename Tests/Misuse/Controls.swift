import BLESec
import BLESecNoise
import BLESecPrimitives

//: control: a handshake writes a message, reads a message, and is split once
func handshake(_ name: ProtocolName, _ keyPair: DHKeyPair) throws -> [UInt8] {
    var initiator = try HandshakeState(protocolName: name, role: .initiator, localStatic: keyPair)
    var responder = try HandshakeState(protocolName: name, role: .responder, localStatic: keyPair)
    let length = try initiator.messageLength(forPayload: 0)
    let message = try [UInt8](capacity: length) { output throws(NoiseError) in
        try initiator.writeMessage(into: &output)
    }
    _ = try [UInt8](capacity: length) { output throws(NoiseError) in
        try responder.readMessage(message.span, payload: &output)
    }
    guard initiator.isFinished else { return message }
    var transport = try initiator.split()
    try transport.rekeySend()
    let keys = StatelessTransport(transport).additionalKeys.key(label: message.span)
    return [UInt8(keys.count)]
}

//: control: a secret is written through a span, compared and wiped
func secret(_ secret: inout SecretBytes, _ other: borrowing SecretBytes) -> Bool {
    var bytes = secret.mutableSpan
    bytes[0] = 1
    defer { secret.wipe() }
    return secret.isEqual(to: other) && constantTimeEqual(secret.span, other.span)
}

//: control: a secret becomes a key, and a key pair passes its private key to a closure
func keys(_ secret: consuming SecretBytes) throws -> Int {
    let pair = try DHKeyPair(curve: .x25519, privateKey: secret)
    let psk = try PreSharedKey(SecretBytes(randomCount: PreSharedKey.length))
    print(pair, psk)
    return pair.withPrivateKey { $0.count }
}

//: control: a channel is dialed, used and closed
func channel(_ endpoint: Endpoint, _ identity: IdentityKey, _ peer: PeerKey) async throws {
    let configuration = ChannelConfiguration(identity: identity, trust: .pinned([peer]))
    let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
    try await channel.send([1])
    for try await message in channel.messages { print(message.count, await channel.peer) }
    try await channel.close()
}

//: control: an error is a ChannelError, and a switch over its code has a default
func errors(_ listener: SecureListener) async -> Bool {
    do {
        return try await listener.accept().loop.isCurrent
    } catch {
        switch error.code {
        case .closed, .cancelled: return false
        default: return error.reason.isEmpty
        }
    }
}

//: control: a trust policy decides with a closure
func policy() -> TrustPolicy { .asking { $0.fingerprint == nil ? .refuse("no key") : .admit } }
