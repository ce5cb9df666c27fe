internal import BLESecJSON
internal import BLESecLocking
internal import Glibc

/// Standard error. A caller of ``write(_:isError:)`` does not wait for the reader.
///
/// While the reader keeps up, the caller's thread writes, so that lines keep their order with those
/// on standard output. Otherwise, as with a stopped terminal or a full pipe, lines wait for a thread
/// of their own, and the event loop continues.
package enum StandardError {
    private struct State: Sendable {
        /// The bytes that wait for the thread begin at `head`.
        private var buffer: [UInt8] = []
        private var head = 0
        /// How many pieces the thread has taken with ``take()``.
        private(set) var takenCount = 0
        /// Whether the thread writes, or is about to write.
        var isThreadWriting = false
        /// How many lines were left out and are not reported yet.
        var leftOut = 0

        var waitingBytes: Int { buffer.count - head }

        mutating func append(_ bytes: some Collection<UInt8>) {
            buffer.append(contentsOf: bytes)
        }

        /// Takes the next line, or as much of it as one write may have. Nil if nothing waits.
        mutating func take() -> [UInt8]? {
            guard head < buffer.count else { return nil }
            let limit = min(head + StandardError.pieceSize, buffer.count)
            let lineFeed = buffer[head..<limit].firstIndex(of: StandardError.lineFeed)
            let end = lineFeed.map { $0 + 1 } ?? limit
            let piece = Array(buffer[head..<end])
            head = end
            takenCount += 1
            if head == buffer.count {
                (buffer, head) = ([], 0)
            } else if head > buffer.count / 2 {
                // Bytes that were taken are removed so seldom that each byte is moved about once.
                buffer.removeFirst(head)
                head = 0
            }
            return piece
        }

        /// Appends a line that says how many lines were left out, if there are any.
        mutating func appendLeftOut() {
            guard leftOut > 0 else { return }
            let line = Diagnostics.line(
                "\(Diagnostics.program): \(leftOut) lines are left out here, since nobody read "
                    + "standard error", "left-out", [("lines", .number(leftOut))])
            append(line.utf8)
            leftOut = 0
        }
    }

    /// How many bytes may wait for the reader; further lines are left out. A burst of lines about
    /// thousands of messages fits.
    private static let capacity = 4 << 20
    /// How many bytes may wait once an error is added. The limit for other lines is lower, so that
    /// an error has room when other lines have none.
    private static let capacityForErrors = 2 * capacity
    /// How many bytes one write has at most: PIPE_BUF. If `poll` says that a pipe has room, it has
    /// room for this many bytes.
    private static let pieceSize = 4_096
    private static let lineFeed = UInt8(ascii: "\n")
    /// Standard error, opened anew and nonblocking if it is a pipe or a terminal. The open file
    /// description of STDERR_FILENO stays blocking, since other processes share it. If standard error
    /// cannot be opened anew, only `poll` says whether a write would wait; for terminals, `poll` is not
    /// exact.
    private static let descriptor: Int32 = {
        var status = stat()
        guard unsafe fstat(STDERR_FILENO, &status) == 0,
            status.st_mode & S_IFMT == S_IFIFO || isatty(STDERR_FILENO) == 1
        else { return STDERR_FILENO }
        let opened = unsafe open(
            "/proc/self/fd/\(STDERR_FILENO)", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        return opened >= 0 ? opened : STDERR_FILENO
    }()

    private static let state = Locked(State())
    private static let thread = BlockingThread.required()

    /// Whether lines wait for the reader. Meanwhile, progress need not be drawn.
    package static var isBehind: Bool { state.withLock { $0.isThreadWriting } }

    /// Writes `text`: at once, or when the reader has taken what was written before. Leaves it out
    /// if too much waits already, and says so later. A failure cannot be reported, and is ignored.
    ///
    /// - Parameter isError: whether `text` is an error, for which there is more room.
    package static func write(_ text: String, isError: Bool = false) {
        let bytes = Array(text.utf8)
        state.withLock { state in
            let done = state.isThreadWriting ? 0 : writeNow(bytes)
            guard done < bytes.count else { return }
            let waiting = state.waitingBytes
            let room = (isError ? capacityForErrors : capacity) - waiting
            guard waiting == 0 || bytes.count <= room else {
                // Text that redraws the bottom of a terminal has no line feed at its end, and is not
                // counted as a line.
                guard bytes.last == lineFeed else { return }
                state.leftOut += bytes.count(where: { $0 == lineFeed })
                return
            }
            state.appendLeftOut()
            state.append(bytes[done...])
            guard !state.isThreadWriting else { return }
            state.isThreadWriting = true
            thread.perform { writeWaiting() }
        }
    }

    /// Waits until everything is written, or until the reader has taken nothing for a second, and
    /// for at most ten seconds in all. To be called before the process ends.
    static func drain() {
        let lastDeadline = ContinuousClock.now + .seconds(10)
        var deadline = ContinuousClock.now + .seconds(1)
        var progress = progress
        while isBehind, ContinuousClock.now < min(deadline, lastDeadline) {
            // The fill level of a pipe can only be polled, and the process has nothing else to do.
            usleep(1_000)
            let now = Self.progress
            if now != progress { (progress, deadline) = (now, ContinuousClock.now + .seconds(1)) }
        }
    }

    /// Changes when the reader takes something. `taken` changes when a write ends; a pipe has room
    /// for a write only after a whole page is read. `queued` is the number of bytes in the pipe, and
    /// changes with every read. Without a pipe, only `taken` shows progress.
    private static var progress: (taken: Int, queued: Int32) {
        var queued: Int32 = 0
        _ = unsafe ioctl(STDERR_FILENO, UInt(FIONREAD), &queued)
        return (state.withLock { $0.takenCount }, queued)
    }

    /// Writes what the reader takes without a wait, and returns the number of these bytes. Bytes
    /// that cannot be written at all count as written.
    private static func writeNow(_ bytes: [UInt8]) -> Int {
        var done = 0
        while done < bytes.count {
            var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            guard unsafe poll(&entry, 1, 0) > 0 else { return done }
            let piece = Array(bytes[done..<min(done + pieceSize, bytes.count)])
            let count = unsafe Glibc.write(descriptor, piece, piece.count)
            if count > 0 {
                done += count
            } else if count < 0, errno == EAGAIN {
                return done
            } else if count == 0 || errno != EINTR {
                return bytes.count
            }
        }
        return done
    }

    /// Writes on the thread what waits.
    private static func writeWaiting() {
        while let bytes = takeWaiting() {
            try? StandardOutput.write(bytes, to: STDERR_FILENO)
        }
    }

    private static func takeWaiting() -> [UInt8]? {
        state.withLock { state in
            if state.waitingBytes == 0 { state.appendLeftOut() }
            let bytes = state.take()
            if bytes == nil { state.isThreadWriting = false }
            return bytes
        }
    }
}
