internal import BLESecChannelCore
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// Standard input, read when someone asks and no sooner.
final class StandardInput: Sendable {
    /// The process's own.
    static let shared = StandardInput()

    /// How much is read at once: what a channel takes before it makes its sender wait.
    private static let chunk = 64 << 10

    private typealias Chunk = Result<[UInt8]?, ChannelError>

    private struct State: Sendable {
        /// A read that nobody waited for any more, or the end, which stays.
        var arrived: Chunk?
        var waiter: CheckedContinuation<Chunk, Never>?
        var isReading = false
    }

    private let state = Locked(State())
    private let thread = BlockingThread()

    /// The next bytes, at least one, or nil at the end.
    ///
    /// - Throws: `input-output`; `cancelled`, after which the bytes that were waited for come first
    ///   next time.
    func next() async throws(ChannelError) -> [UInt8]? {
        let chunk: Chunk = await withTaskCancellationHandler {
            await withCheckedContinuation { wait($0) }
        } onCancel: {
            state.withLock { $0.waiter.take() }?.resume(returning: Self.cancelled)
        }
        return try chunk.get()
    }

    private static let cancelled = Chunk.failure(
        ChannelError(.cancelled, "nobody waits for standard input any more"))

    private func wait(_ waiter: CheckedContinuation<Chunk, Never>) {
        let (now, reads): (Chunk?, Bool) = state.withLock { state in
            if let chunk = state.arrived {
                if case .success(.some) = chunk { state.arrived = nil }
                return (chunk, false)
            }
            // Whoever cancels first sets this and looks for the waiter then.
            if Task.isCancelled { return (Self.cancelled, false) }
            state.waiter = waiter
            defer { state.isReading = true }
            return (nil, !state.isReading)
        }
        if let now { waiter.resume(returning: now) }
        if reads { thread.perform { [self] in deliver(Self.read()) } }
    }

    private func deliver(_ chunk: Chunk) {
        let waiter = state.withLock { state in
            state.isReading = false
            let isLast = if case .success(.some) = chunk { false } else { true }
            if state.waiter == nil || isLast { state.arrived = chunk }
            return state.waiter.take()
        }
        waiter?.resume(returning: chunk)
    }

    private static func read() -> Chunk {
        var bytes = [UInt8](repeating: 0, count: chunk)
        while true {
            let count = unsafe Glibc.read(STDIN_FILENO, &bytes, bytes.count)
            if count >= 0 { return .success(count == 0 ? nil : Array(bytes[..<count])) }
            switch errno {
            case EINTR: continue
            case EAGAIN:
                // Someone who shares the descriptor made it nonblocking.
                var entry = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
                _ = unsafe poll(&entry, 1, -1)
            case let number:
                let text = unsafe strerror(number).map { unsafe String(cString: $0) }
                return .failure(
                    ChannelError(
                        .inputOutput,
                        "standard input cannot be read: \(text ?? "error \(number)")",
                        underlying: .errno(number)))
            }
        }
    }
}
