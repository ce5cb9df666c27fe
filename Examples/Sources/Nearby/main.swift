// Nearby: finds the holder of a key over Bluetooth, and exchanges lines with it.
//
//     Nearby SERVICE KEY PEER
//
// Run it on two devices. SERVICE is a UUID, the same on both (`uuidgen` makes one). KEY is the
// device's key file, which `blesec keygen` makes; PEER is the fingerprint that `blesec keygen`
// printed on the other device. Nearby sends the lines of standard input to the peer, and prints the
// peer's lines. If the link is lost, it connects again once the peer is back.
//
// Like `blesec`, it exits with status 68 if bluetoothd does not run or no adapter is on.

import BLESec
@preconcurrency import Glibc

/// Writes a line to standard error, for the person who runs this.
func note(_ text: String) { fputs("Nearby: \(text)\n", stderr) }

func showStates(of connection: PeerConnection) async {
    for await status in await connection.states() { note(status.state.rawValue) }
}

func showMessages(of connection: PeerConnection) async throws(ChannelError) {
    while let message = try await connection.receive() {
        print(String(decoding: message, as: UTF8.self))
    }
}

/// `readLine` blocks only the main thread: the connection runs on the thread of its event loop.
@MainActor
func converse(
    with peer: PeerKey, over service: BluetoothUUID, as identity: IdentityKey
) async throws {
    let configuration = ChannelConfiguration(identity: identity, trust: .pinned(peer))
    let nearby = try await NearbyService.start(service, configuration: configuration)
    let connection = await PeerConnection.start(.nearby(nearby), to: peer)
    async let states: Void = showStates(of: connection)
    async let messages: Void = showMessages(of: connection)
    while let line = readLine() {
        // Waits while there is no link. If the link is lost, the line is not sent again.
        let fate = try await connection.deliver(line)
        if fate != .delivered { note("\(fate): \(line)") }
    }
    try await connection.close()
    _ = try await (states, messages)
}

setlinebuf(stdout)  // Each line is printed when it arrives, also to a pipe.
let words = CommandLine.arguments
guard words.count == 4, let service = BluetoothUUID(words[1]) else {
    note("usage: Nearby SERVICE-UUID KEY PEER")
    exit(64)
}
do {
    let identity = try IdentityFile.load(words[2])
    try await converse(with: try PeerKey(parsing: words[3]), over: service, as: identity)
} catch let error as ChannelError where error.code == .noSuchAdapter {
    note("\(error)")
    exit(68)
} catch {
    note("\(error)")
    exit(1)
}
