internal import BLESec
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// Standard input. It is read only when a caller asks for bytes.
final class StandardInput: Sendable {
    static let shared = StandardInput()

    /// The size of a read in bytes: as much as a channel queues before its sender has to wait.
    private static let readSize = 64 << 10

    private typealias Chunk = Result<[UInt8]?, ChannelError>

    private struct State: Sendable {
        /// What the next call of ``next()`` gets at once: bytes that were put back, or that were
        /// read for a cancelled caller; or the input's end or an error, which all later calls get,
        /// too.
        var arrived: Chunk?
        var waiter: CheckedContinuation<Chunk, Never>?
        var isReading = false
    }

    private let state = Locked(State())
    private let thread = BlockingThread.required()

    /// The next bytes, at least one, or nil at the end.
    ///
    /// - Throws: `inputOutput`; `cancelled`, after which the next call returns the bytes of the
    ///   cancelled read.
    func next() async throws(ChannelError) -> [UInt8]? {
        let chunk: Chunk = await withTaskCancellationHandler {
            await withCheckedContinuation { wait($0) }
        } onCancel: {
            state.withLock { $0.waiter.take() }?.resume(returning: Self.cancelled)
        }
        return try chunk.get()
    }

    /// Gives back the bytes that ``next()`` has returned last, for the next call.
    func putBack(_ bytes: [UInt8]) { state.withLock { $0.arrived = .success(bytes) } }

    /// Whether bytes wait to be read at this moment. Bytes that a file or a pipe gets later do not
    /// count. This property reads none of the bytes.
    static var hasBytes: Bool {
        var count: Int32 = 0
        return unsafe ioctl(STDIN_FILENO, UInt(FIONREAD), &count) == 0 && count != 0
    }

    private static let cancelled = Chunk.failure(
        ChannelError(.cancelled, "nobody waits for standard input any more"))

    private func wait(_ waiter: CheckedContinuation<Chunk, Never>) {
        let (available, startsRead): (Chunk?, Bool) = state.withLock { state in
            if let chunk = state.arrived {
                if case .success(.some) = chunk { state.arrived = nil }
                return (chunk, false)
            }
            // No cancellation is missed: `Task.isCancelled` is true before `onCancel` takes the
            // lock and the waiter.
            if Task.isCancelled { return (Self.cancelled, false) }
            state.waiter = waiter
            let startsRead = !state.isReading
            state.isReading = true
            return (nil, startsRead)
        }
        if let available { waiter.resume(returning: available) }
        if startsRead { thread.perform { [self] in finishRead(Self.read()) } }
    }

    private func finishRead(_ chunk: Chunk) {
        let waiter = state.withLock { state in
            state.isReading = false
            let isFinal = if case .success(.some) = chunk { false } else { true }
            if state.waiter == nil || isFinal { state.arrived = chunk }
            return state.waiter.take()
        }
        waiter?.resume(returning: chunk)
    }

    private static func read() -> Chunk {
        var bytes = [UInt8](repeating: 0, count: readSize)
        var reads = TerminalReads(STDIN_FILENO)
        while true {
            let count = unsafe Glibc.read(STDIN_FILENO, &bytes, bytes.count)
            if count >= 0 { return .success(count == 0 ? nil : Array(bytes[..<count])) }
            switch errno {
            case EINTR: continue
            case EAGAIN:
                // Another process shares the open file description, and has made it nonblocking.
                var entry = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
                _ = unsafe poll(&entry, 1, -1)
            case let number where reads.mayRetry(after: number): continue
            case let number:
                return .failure(.system(.inputOutput, "standard input cannot be read", number))
            }
        }
    }
}
