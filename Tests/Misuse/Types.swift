import BLESec
import BLESecNoise
import BLESecPrimitives

//: a secret cannot be interpolated into a string
func printSecret(_ secret: borrowing SecretBytes) {
    print("\(secret)")  // error: appendInterpolation
}

//: a secret cannot be dumped
func dumpSecret(_ secret: borrowing SecretBytes) {
    dump(secret)  // error: 'SecretBytes' conform to 'Copyable'
}

//: secrets cannot be compared with ==, but only with a function that takes constant time
func compareSecrets(_ first: borrowing SecretBytes, _ second: borrowing SecretBytes) -> Bool {
    first == second  // error: operator '=='
}

//: a secret cannot be in a set, since its hash would reveal it
func collectSecrets() {
    _ = Set<SecretBytes>()  // error: 'SecretBytes' does not conform to protocol
}

//: a secret cannot be converted into an array
func arrayOfSecret(_ secret: borrowing SecretBytes) -> [UInt8] {
    Array(secret)  // error: no exact matches in call to initializer
}

//: the property that holds a key pair's private key is inaccessible
func readPrivateKey(_ pair: DHKeyPair) {
    _ = pair.privateKey  // error: 'privateKey' is inaccessible
}

//: a private key's bytes cannot leave the closure that gets them
func leakPrivateKey(_ pair: DHKeyPair) {
    let bytes: Span<UInt8> = pair.withPrivateKey {  // error: conform to 'Escapable'
        (lent: Span<UInt8>) -> Span<UInt8> in lent
    }
    _ = bytes
}

//: the property that holds a pre-shared key's bytes is inaccessible
func readPreSharedKey(_ key: PreSharedKey) {
    _ = key.key  // error: 'key' is inaccessible
}

//: a pre-shared key cannot be made from an array, but only from a secret
func preSharedKeyFromArray(_ bytes: [UInt8]) throws {
    _ = try PreSharedKey(bytes)  // error: cannot convert value of type '[UInt8]'
}

//: an app cannot choose a handshake's ephemeral key
func fixEphemeral(_ state: inout HandshakeState, _ pair: DHKeyPair) {
    state.useFixedEphemeral(pair)  // error: 'useFixedEphemeral' is inaccessible
}

//: an app cannot set the peer's static key of a handshake
func replaceRemoteStatic(_ state: inout HandshakeState, _ key: [UInt8]) {
    state.remoteStatic = key  // error: setter is inaccessible
}

//: an app cannot set a transport's nonce
func resetNonce(_ transport: inout TransportState) {
    transport.setSendingNonce(0)  // error: 'setSendingNonce' is inaccessible
}

//: an app cannot make a transport without a finished handshake
func makeTransport() {
    _ =
        TransportState  // error: 'internal' protection level
        .init(_:isFirstWriter:role:isOneWay:handshakeHash:remoteStatic:)
}

//: handshakes cannot be in an array, which could copy them
func collectHandshakes() {
    _ = [HandshakeState]()  // error: 'HandshakeState' does not conform to protocol 'Copyable'
}

//: a handshake takes a parsed protocol name, and no string
func nameHandshakeByString(_ pair: DHKeyPair) throws {
    _ = try HandshakeState(
        protocolName: "Noise_XX_25519_ChaChaPoly_SHA256",  // error: cannot convert value
        role: .initiator, localStatic: pair)
}

//: a borrowed transport cannot encrypt
func encryptBorrowed(
    _ transport: borrowing TransportState, _ output: inout OutputSpan<UInt8>
) throws {
    try transport.encrypt(Span(), into: &output)  // error: cannot use mutating member
}

//: an app cannot make a channel without a handshake
func makeChannel(_ link: any Link, _ configuration: ChannelConfiguration) {
    _ = SecureChannel(  // error: initializer is inaccessible
        over: link, role: .dialer, configuration: configuration)
}

//: an endpoint cannot send: only a channel can
func sendToEndpoint(_ endpoint: Endpoint) async throws {
    try await endpoint.send([1])  // error: has no member 'send'
}

//: a configuration cannot be made without a trust policy
func omitTrust(_ identity: IdentityKey) {
    _ = ChannelConfiguration(identity: identity)  // error: missing argument for parameter 'trust'
}

//: an app cannot make a trust policy with a rule of its own
func makeOwnRule() {
    _ = TrustPolicy.init(rule:)  // error: inaccessible due to 'private'
}

//: a channel's driver is inaccessible
func readDriver(_ channel: SecureChannel) async {
    _ = await channel.driver  // error: 'driver' is inaccessible
}

//: an app cannot choose the ephemeral key of a dial
func fixDialEphemeral(_ configuration: inout ChannelConfiguration, _ pair: DHKeyPair) {
    configuration.fixedEphemeral = pair  // error: 'fixedEphemeral' is inaccessible
}

//: a switch over an error's code needs a default, since codes may be added
func switchWithoutDefault(_ error: ChannelError) -> Bool {
    switch error.code {  // error: switch must be exhaustive
    case .refused, .untrusted: true
    case .closed: false
    }
}

//: a channel has no property with the claimed identity: only the trust policy gets it
func readClaimedIdentity(_ channel: SecureChannel) async {
    _ = await channel.claimedIdentity  // error: has no member 'claimedIdentity'
}

//: a claimed identity is not a proven identity, and cannot be converted into one
func actOnClaim() -> TrustPolicy {
    .asking { claimed in
        let proven: PeerIdentity = claimed  // error: cannot convert value of type 'ClaimedIdentity'
        return proven == .anonymous ? .refuse("nobody") : .admit
    }
}

//: the identity inside a claimed identity is inaccessible
func openClaim(_ claimed: ClaimedIdentity) -> PeerIdentity {
    claimed.identity  // error: 'identity' is inaccessible
}

//: a claimed identity cannot be compared with a proven identity
func compareClaim(_ claimed: ClaimedIdentity, _ peer: PeerIdentity) -> Bool {
    claimed == peer  // error: binary operator '==' cannot be applied
}
