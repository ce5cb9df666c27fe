import BLESec

/// The code for the listener in README.md, "In Swift".
func listen() async throws {
    let laptopOnly = TrustPolicy.pinned(try PeerKey(parsing: "SHA256:…"))
    let configuration = ChannelConfiguration(
        identity: try IdentityFile.load("phone.key"), trust: laptopOnly)
    let listener = try await SecureListener.listen(
        on: Endpoint(parsing: "l2cap:any"), configuration: configuration)
    let channel = try await listener.accept()
    for try await message in channel.messages { print(String(decoding: message, as: UTF8.self)) }
    try await channel.close()
}
