import BLESecLinks
import Glibc
import Testing

/// Records what a link reports.
final class Recorder: LinkHandler {
    var readable = 0
    var writable = 0
    var hangUps = 0
    var whenReadable: () -> Void = {}
    var whenWritable: () -> Void = {}

    func linkIsReadable() {
        readable += 1
        whenReadable()
    }

    func linkIsWritable() {
        writable += 1
        whenWritable()
    }

    func linkDidHangUp() { hangUps += 1 }
}

extension Link {
    /// Sends an array.
    func send(_ bytes: [UInt8]) throws(LinkError) -> Int { try send(bytes.span) }

    /// Receives up to `capacity` bytes.
    func receive(_ capacity: Int = 65_536) throws(LinkError) -> (
        bytes: [UInt8], outcome: LinkReceive
    ) {
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: capacity) { buffer throws(LinkError) in
            outcome = try receive(into: &buffer)
        }
        return (bytes, outcome)
    }
}

/// Creates a loop, runs `body` on it, and ends the loop.
func withLoop(
    clock: LoopClock = .system, _ body: @escaping @Sendable (EventLoop) async throws -> Void
) async throws {
    let loop = EventLoop(name: "test", clock: clock)
    let outcome = await Task(executorPreference: loop) { try await body(loop) }.result
    await loop.shutdown()
    try outcome.get()
}

/// A path that no other test uses.
func temporaryPath() -> String {
    "/tmp/blesec-test-\(getpid())-\(UInt64.random(in: 0 ... .max)).sock"
}

/// Whether a file exists at the path.
func exists(_ path: String) -> Bool { mode(path) != nil }

/// The permissions of the file at the path.
func mode(_ path: String) -> UInt32? {
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else { return nil }
    return status.st_mode & 0o7777
}

/// How many descriptors this process has open.
func openDescriptors() -> Int { (0..<4_096).count { fcntl(Int32($0), F_GETFD) >= 0 } }

/// Leaves the socket file of a closed listener behind, as a crash does.
func leaveStale(_ address: UnixAddress, loop: EventLoop) async throws {
    let listener = try await UnixListener.listen(address, loop: loop)
    let kept = temporaryPath()
    unsafe link(address.path, kept)
    await listener.close()
    unsafe rename(kept, address.path)
}

/// Makes an empty file.
func makeFile(_ path: String) { close(unsafe open(path, O_CREAT | O_WRONLY, 0o600)) }

/// Removes a file.
func removeFile(_ path: String) { unsafe unlink(path) }
