import BLESec

let (alice, bob) = (try IdentityKey.generate(), try IdentityKey.generate())
let trustsAlice = TrustPolicy.pinned(alice.fingerprint)
let trustsBob = TrustPolicy.pinned(bob.fingerprint)
let listener = try await SecureListener.listen(
    on: Endpoint(parsing: "unix:greeting"), configuration: .init(identity: bob, trust: trustsAlice))
async let accepted = listener.accept()
let channel = try await SecureChannel.dial(
    listener.localEndpoint, configuration: .init(identity: alice, trust: trustsBob))
try await channel.send("hello, \(await channel.peer)")
let theirs = try await accepted
print(String(decoding: try await theirs.receive() ?? [], as: UTF8.self))
async let closed: Void = theirs.close()
_ = try await (channel.close(), closed)  // each side knows that the other has everything
