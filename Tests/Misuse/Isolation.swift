import BLESec

//: a channel is asked from outside with await
func sendWithoutAwait(_ channel: SecureChannel) throws {
    try channel.send([1])  // error: 'async' call in a function that does not support concurrency
}

//: who the peer is belongs to the channel's loop
func readPeerWithoutAwait(_ channel: SecureChannel) -> PeerIdentity {
    channel.peer  // error: actor-isolated property 'peer' can not be referenced
}

//: a channel is not aborted from another thread in passing
func abortWithoutAwait(_ channel: SecureChannel) {
    channel.abort()  // error: call to actor-isolated instance method 'abort()'
}

//: a policy that asks somebody carries nothing that threads cannot share
func askWithMutableCapture() -> TrustPolicy {
    var asked = 0
    return .asking { _ in
        asked += 1  // error: mutation of captured var 'asked'
        return .admit
    }
}
