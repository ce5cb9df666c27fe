import BLESec
import BLESecNoise
import BLESecPrimitives

//: a secret is not printed
func printSecret(_ secret: borrowing SecretBytes) {
    print("\(secret)")  // error: appendInterpolation
}

//: a secret is not dumped
func dumpSecret(_ secret: borrowing SecretBytes) {
    dump(secret)  // error: 'SecretBytes' conform to 'Copyable'
}

//: a secret is compared in constant time or not at all
func compareSecrets(_ one: borrowing SecretBytes, _ other: borrowing SecretBytes) -> Bool {
    one == other  // error: operator '=='
}

//: a secret is no member of a set, since its hash would show it
func collectSecrets() {
    _ = Set<SecretBytes>()  // error: 'SecretBytes' does not conform to protocol
}

//: a secret does not become an array by a conversion
func arrayOfSecret(_ secret: borrowing SecretBytes) -> [UInt8] {
    Array(secret)  // error: no exact matches in call to initializer
}

//: a key pair does not show its private key
func readPrivateKey(_ pair: DHKeyPair) {
    _ = pair.privateKey  // error: 'privateKey' is inaccessible
}

//: a private key's bytes do not leave the closure that they are lent to
func leakPrivateKey(_ pair: DHKeyPair) {
    let bytes: Span<UInt8> = pair.withPrivateKey {  // error: conform to 'Escapable'
        (lent: Span<UInt8>) -> Span<UInt8> in lent
    }
    _ = bytes
}

//: a pre-shared key does not show its bytes
func readPreSharedKey(_ key: PreSharedKey) {
    _ = key.key  // error: 'key' is inaccessible
}

//: a pre-shared key is made of a secret, and of no plain bytes
func preSharedKeyFromArray(_ bytes: [UInt8]) throws {
    _ = try PreSharedKey(bytes)  // error: cannot convert value of type '[UInt8]'
}

//: an ephemeral is fixed for vectors alone
func fixEphemeral(_ state: inout HandshakeState, _ pair: DHKeyPair) {
    state.useFixedEphemeral(pair)  // error: 'useFixedEphemeral' is inaccessible
}

//: the peer's key comes out of the handshake, and from nowhere else
func replaceRemoteStatic(_ state: inout HandshakeState, _ key: [UInt8]) {
    state.remoteStatic = key  // error: setter is inaccessible
}

//: a nonce is not set back
func resetNonce(_ transport: inout TransportState) {
    transport.setSendingNonce(0)  // error: 'setSendingNonce' is inaccessible
}

//: transport comes out of a finished handshake, and from nowhere else
func makeTransport() {
    _ =
        TransportState  // error: 'internal' protection level
        .init(_:isFirstWriter:role:isOneWay:handshakeHash:remoteStatic:)
}

//: handshakes are not kept in an array, which would copy them
func collectHandshakes() {
    _ = [HandshakeState]()  // error: 'HandshakeState' does not conform to protocol 'Copyable'
}

//: a protocol's name is checked before it is used
func nameHandshakeByString(_ pair: DHKeyPair) throws {
    _ = try HandshakeState(
        protocolName: "Noise_XX_25519_ChaChaPoly_SHA256",  // error: cannot convert value
        role: .initiator, localStatic: pair)
}

//: a transport that is only lent does not send
func encryptBorrowed(
    _ transport: borrowing TransportState, _ output: inout OutputSpan<UInt8>
) throws {
    try transport.encrypt(Span(), into: &output)  // error: cannot use mutating member
}

//: a channel exists only when both sides are proven
func makeChannel(_ link: any Link, _ configuration: ChannelConfiguration) {
    _ = SecureChannel(  // error: initializer is inaccessible
        over: link, role: .dialer, configuration: configuration)
}

//: nothing is sent to a configuration, an endpoint or anything else that is no channel
func sendToEndpoint(_ endpoint: Endpoint) async throws {
    try await endpoint.send([1])  // error: has no member 'send'
}

//: whom to trust is said by whoever makes a configuration
func omitTrust(_ identity: IdentityKey) {
    _ = ChannelConfiguration(identity: identity)  // error: missing argument for parameter 'trust'
}

//: a trust policy has one of the rules that there are
func makeOwnRule() {
    _ = TrustPolicy.init(rule:)  // error: inaccessible due to 'private'
}

//: a channel's state machine is its own
func readDriver(_ channel: SecureChannel) async {
    _ = await channel.driver  // error: 'driver' is inaccessible
}

//: a dial's ephemeral is fresh
func fixDialEphemeral(_ configuration: inout ChannelConfiguration, _ pair: DHKeyPair) {
    configuration.fixedEphemeral = pair  // error: 'fixedEphemeral' is inaccessible
}

//: an error's code may be a new one
func switchWithoutDefault(_ error: ChannelError) -> Bool {
    switch error.code {  // error: switch must be exhaustive
    case .refused, .untrusted: true
    case .closed: false
    }
}

//: a peer's identity that was shown and not proven has no other form than the policy's question
func readClaimedIdentity(_ channel: SecureChannel) async {
    _ = await channel.claimedIdentity  // error: has no member 'claimedIdentity'
}

//: what a policy is asked about is no proven identity, and does not become one
func actOnClaim() -> TrustPolicy {
    .asking { claimed in
        let proven: PeerIdentity = claimed  // error: cannot convert value of type 'ClaimedIdentity'
        return proven == .anonymous ? .refuse("nobody") : .admit
    }
}

//: a claim does not show the identity that is in it
func openClaim(_ claimed: ClaimedIdentity) -> PeerIdentity {
    claimed.identity  // error: 'identity' is inaccessible
}

//: a claim is compared with no proven identity
func compareClaim(_ claimed: ClaimedIdentity, _ peer: PeerIdentity) -> Bool {
    claimed == peer  // error: binary operator '==' cannot be applied
}
