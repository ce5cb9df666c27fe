import BLESec

/// The code for the dialer in README.md, "In Swift".
func dial() async throws {
    let phoneOnly = TrustPolicy.pinned(try PeerKey(parsing: "SHA256:…"))
    let configuration = ChannelConfiguration(
        identity: try IdentityFile.load("laptop.key"), trust: phoneOnly)
    let endpoint = try Endpoint(parsing: "l2cap:AA:BB:CC:DD:EE:FF/0x80")
    let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
    print(try await channel.deliver("hello"))  // delivered: the peer's program has it
    try await channel.close()
}
