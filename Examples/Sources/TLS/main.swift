// TLS: two devices with certificates of one authority. `blesec ca` makes the authority and the
// devices' certificates:
//
//     blesec ca init home
//     blesec ca issue home --uri blesec://home/door --out door
//     blesec ca issue home --uri blesec://home/phone --out phone
//
//     TLS listen ENDPOINT home door blesec://home/phone      waits for one message
//     TLS dial ENDPOINT home phone blesec://home/door        delivers one message
//
// To listen, ENDPOINT is unix:PATH or l2cap:any; to dial, it is what the listener prints.

import BLESec
@preconcurrency import Glibc

/// Writes a line to standard error, for the person who runs this.
func note(_ text: String) { fputs("TLS: \(text)\n", stderr) }

/// The configuration of the device with `NAME.pem` and `NAME.key`. It accepts a peer whose
/// certificate has the URI `uri`, was issued by the authority in `folder`, and is not on that
/// authority's revocation list.
func configuration(
    of name: String, authority folder: String, peer uri: String
) throws(ChannelError) -> ChannelConfiguration {
    let authorities = try CertificateFile.authorities("\(folder)/ca.pem")
    var configuration = ChannelConfiguration(identity: nil, trust: .authority(uris: [uri]))
    configuration.protocols = [TLSContext.protocolName]
    configuration.tls = try TLSContext(
        identity: try CertificateFile.identity(
            certificate: "\(name).pem", key: "\(name).key", now: Int64(time(nil))),
        authorities: authorities,
        revoked: try RevocationFile("\(folder)/ca.crl", authorities: authorities))
    return configuration
}

func listen(
    on endpoint: Endpoint, _ configuration: ChannelConfiguration
) async throws(ChannelError) {
    let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
    let failures = await listener.failures()
    Task { for await failure in failures { note("\(failure.peer): \(failure.error)") } }
    note("listening on \(listener.localEndpoint)")
    let channel = try await listener.accept()
    let message = try await channel.receive() ?? []
    let uri = await channel.peer.uri ?? ""
    print("\(uri): \(String(decoding: message, as: UTF8.self))")
    try await channel.close()
    await listener.close()
}

func dial(_ endpoint: Endpoint, _ configuration: ChannelConfiguration) async throws(ChannelError) {
    let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
    print(try await channel.deliver("the bell rings"))
    try await channel.close()
}

let words = CommandLine.arguments
guard words.count == 6, ["listen", "dial"].contains(words[1]) else {
    note("usage: TLS listen|dial ENDPOINT AUTHORITY-FOLDER NAME PEER-URI")
    exit(64)
}
do {
    let endpoint = try Endpoint(parsing: words[2])
    let device = try configuration(of: words[4], authority: words[3], peer: words[5])
    try await words[1] == "listen" ? listen(on: endpoint, device) : dial(endpoint, device)
} catch {
    note("\(error)")
    exit(1)
}
