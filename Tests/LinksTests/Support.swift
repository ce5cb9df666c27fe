import BLESecLinks
import Glibc
import Testing

/// Counts what a link reports, and calls a closure for each report of readiness.
final class Recorder: LinkHandler {
    var readableCount = 0
    var writableCount = 0
    var hangUpCount = 0
    var whenReadable: () -> Void = {}
    var whenWritable: () -> Void = {}

    func linkIsReadable() {
        readableCount += 1
        whenReadable()
    }

    func linkIsWritable() {
        writableCount += 1
        whenWritable()
    }

    func linkDidHangUp() { hangUpCount += 1 }
}

extension Link {
    /// Sends an array.
    func send(_ bytes: [UInt8]) throws(LinkError) -> Int { try send(bytes.span) }

    /// Receives up to `capacity` bytes.
    func receive(upTo capacity: Int = 65_536) throws(LinkError) -> (
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

/// Whether a file of any kind exists at the path.
func exists(_ path: String) -> Bool { mode(path) != nil }

/// The permissions of the file at the path; nil if no file exists there.
func mode(_ path: String) -> UInt32? {
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else { return nil }
    return status.st_mode & 0o7777
}

/// The number of this process's open descriptors below 4,096.
func openDescriptors() -> Int { (0..<4_096).count { fcntl(Int32($0), F_GETFD) >= 0 } }

/// Makes a socket file on which no process listens, like one that a crash has left.
func makeStaleSocket(_ address: UnixAddress, loop: EventLoop) async throws {
    let listener = try await UnixListener.listen(address, loop: loop)
    // Closing removes the file from the listener's path. The file survives at a second path, and is
    // then moved back.
    let secondPath = temporaryPath()
    unsafe link(address.path, secondPath)
    await listener.close()
    unsafe rename(secondPath, address.path)
}

func makeEmptyFile(_ path: String) { close(unsafe open(path, O_CREAT | O_WRONLY, 0o600)) }

func removeFile(_ path: String) { unsafe unlink(path) }
