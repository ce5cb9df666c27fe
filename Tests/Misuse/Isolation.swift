import BLESec

//: a call to a channel from outside its actor needs await
func sendWithoutAwait(_ channel: SecureChannel) throws {
    try channel.send([1])  // error: 'async' call in a function that does not support concurrency
}

//: a channel's peer cannot be read from outside its actor without await
func readPeerWithoutAwait(_ channel: SecureChannel) -> PeerIdentity {
    channel.peer  // error: actor-isolated property 'peer' can not be referenced
}

//: a channel cannot be aborted from outside its actor without await
func abortWithoutAwait(_ channel: SecureChannel) {
    channel.abort()  // error: call to actor-isolated instance method 'abort()'
}

//: the closure of an asking policy cannot change a captured variable, which threads would share
func askWithMutableCapture() -> TrustPolicy {
    var asked = 0
    return .asking { _ in
        asked += 1  // error: mutation of captured var 'asked'
        return .admit
    }
}
