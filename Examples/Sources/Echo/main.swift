// Echo: a listener that sends every message back, and a dialer that prints the replies.
//
//     Echo listen ENDPOINT KEY PEER     serves any number of dialers, until it is interrupted
//     Echo dial ENDPOINT KEY PEER       sends the lines of standard input
//
// To listen, ENDPOINT is unix:PATH or l2cap:any; to dial, it is what the listener prints. KEY is
// this side's key file, which `blesec keygen` makes; PEER is the fingerprint that `blesec keygen`
// printed on the other side.

import BLESec
@preconcurrency import Glibc

/// Writes a line to standard error, for the person who runs this.
func note(_ text: String) { fputs("Echo: \(text)\n", stderr) }

func listen(on endpoint: Endpoint, _ configuration: ChannelConfiguration) async throws {
    let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
    note("listening on \(listener.localEndpoint)")
    let failures = await listener.failures()
    try await withThrowingDiscardingTaskGroup { group in
        group.addTask {
            for await failure in failures { note("\(failure.peer): \(failure.error)") }
        }
        for try await channel in listener.channels { group.addTask { await echo(channel) } }
    }
}

/// Sends every message back, until the peer has sent everything. An error ends only this channel.
func echo(_ channel: SecureChannel) async {
    let peer = await channel.peer
    do {
        for try await message in channel.messages { try await channel.send(message) }
        try await channel.close()
        note("served \(peer)")
    } catch {
        note("\(peer): \(error)")
    }
}

/// `readLine` blocks only the main thread: the channel runs on the thread of its event loop.
@MainActor
func dial(_ endpoint: Endpoint, _ configuration: ChannelConfiguration) async throws(ChannelError) {
    let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
    while let line = readLine() {
        try await channel.send(line)
        guard let echo = try await channel.receive() else { break }
        print(String(decoding: echo, as: UTF8.self))
    }
    try await channel.close()
}

let words = CommandLine.arguments
guard words.count == 5, ["listen", "dial"].contains(words[1]) else {
    note("usage: Echo listen|dial ENDPOINT KEY PEER")
    exit(64)
}
do {
    let endpoint = try Endpoint(parsing: words[2])
    let configuration = ChannelConfiguration(
        identity: try IdentityFile.load(words[3]), trust: .pinned(try PeerKey(parsing: words[4])))
    switch words[1] {
    case "listen": try await listen(on: endpoint, configuration)
    default: try await dial(endpoint, configuration)
    }
} catch {
    note("\(error)")
    exit(1)
}
