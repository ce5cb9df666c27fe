public import BLESec
internal import BLESecLocking

/// The transfer of one file, or of a folder with all its contents, to a peer or from a peer.
///
/// A transfer outlives lost links. What the receiver has written is not sent again, even if the
/// process on one side was replaced. The sender continues by itself with a new process of the
/// receiver. A new process of the sender has to call `sendFile` for the same file.
public final class FileTransfer: Sendable {
    /// How far a transfer is.
    public enum State: String, Sendable, Hashable, CaseIterable {
        /// There has been no link to the peer yet.
        case connecting
        /// The link is lost, or the receiver has not decided yet.
        case waiting
        /// The receiver has accepted the offer, and the files are sent.
        case transferring
        /// Everything was sent, but the receiver has not stored all of it yet. Only the sender's
        /// transfer has this state.
        case verifying
        /// The receiver has everything under its final name, on its disk.
        case done
        /// The transfer has ended and is not done: see the error that ``FileTransfer/finish()``
        /// throws.
        case failed
    }

    /// How far a transfer is at one moment.
    public struct Progress: Sendable, Hashable {
        /// The state of the transfer.
        public var state: State
        /// How many bytes the receiver has written, or had before the transfer. They are durable
        /// once the transfer is done.
        public var bytes: UInt64
        /// How many bytes there are in all.
        public var totalBytes: UInt64
        /// How many files the receiver has finished with: each is stored, or has failed.
        public var files: Int
        /// How many files there are in all.
        public var totalFiles: Int
        /// Bytes per second, over about the last three seconds; nil while the rate is unknown.
        public var rate: Double?
        /// The time that the rest takes at this rate; nil while the rate is unknown or 0, and if
        /// the time is more than 10^12 seconds.
        public var timeLeft: Duration?
    }

    /// A file or folder that was not sent, or not stored.
    public struct Failure: Sendable, Hashable {
        /// Its path in the folder that is sent. For the sent file or folder itself, its name.
        public let path: String
        /// Why it was not sent or not stored.
        public let problem: FileProblem
        /// The details; empty if the problem says everything.
        public let text: String

        init(path: String, problem: FileProblem, text: String = "") {
            (self.path, self.problem, self.text) = (path, problem, text)
        }

        var reason: String { text.isEmpty ? problem.meaning : text }
    }

    /// The name of the file or folder, as its sender gave it.
    public let name: String
    /// Whether a folder is transferred, and not a single file.
    public let isFolder: Bool
    /// Whether this side is the receiver.
    public let isIncoming: Bool

    struct Status: Sendable {
        var progress: Progress
        var meter = RateMeter()
        var result: Result<String, ChannelError>?
        var failures: [Failure] = []
        var observers: [Int: AsyncStream<Progress>.Continuation] = [:]
        var lastObserverNumber = 0
        var waiters: [CheckedContinuation<Result<String, ChannelError>, Never>] = []
        var task: Task<Void, Never>?
        var isCancelled = false
        var wasStoredBefore = false
    }

    let status: Locked<Status>

    init(name: String, isFolder: Bool, isIncoming: Bool, bytes: UInt64, files: Int) {
        self.name = name
        self.isFolder = isFolder
        self.isIncoming = isIncoming
        status = Locked(
            Status(
                progress: Progress(
                    state: isIncoming ? .transferring : .connecting, bytes: 0, totalBytes: bytes,
                    files: 0, totalFiles: files)))
    }

    /// How far the transfer is now.
    public var current: Progress { status.withLock { $0.progress } }
    /// The first 100 of the files that were not stored. Empty until the transfer has ended.
    public var failures: [Failure] { status.withLock { $0.failures } }

    /// How far the transfer is now, and then the newest progress after each change, until it ends.
    /// `bytes` never decreases.
    public var progress: AsyncStream<Progress> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { feed in
            let number = status.withLock { status -> Int in
                feed.yield(status.progress)
                status.lastObserverNumber += 1
                if status.result == nil {
                    status.observers[status.lastObserverNumber] = feed
                } else {
                    feed.finish()
                }
                return status.lastObserverNumber
            }
            feed.onTermination = { [weak self] _ in
                _ = self?.status.withLock { $0.observers.removeValue(forKey: number) }
            }
        }
    }

    /// Waits until the receiver has stored everything, and returns the name under which it has
    /// stored it. The sender of an incoming transfer may not know of this yet: before the program
    /// ends, close the connection with `PeerConnection.close(within:)`, which waits until the
    /// sender knows.
    ///
    /// - Throws: `refused`, `busy`, `noSpace`, `cannotCreate`, `fileChanged` or `noSuchFile`,
    ///   according to the ``FileProblem``; `incomplete` when some files of a folder were not
    ///   stored; `cancelled` after ``cancel()`` on either side; `cancelled` also when the task that
    ///   waits is cancelled, but then the transfer goes on; `sessionLost` for an incoming transfer
    ///   when the sender's process was replaced before everything was stored;
    ///   `streamReset` when the peer gave up without a reason; `protocolViolation`;
    ///   `configuration` over a connection without `Guarantee.exactlyOnce`; the error that closed
    ///   the connection.
    @discardableResult
    public func finish() async throws(ChannelError) -> String {
        // The progress ends with the transfer, or when the task is cancelled.
        for await _ in progress {}
        guard let result = status.withLock({ $0.result }) else {
            throw ChannelError(.cancelled, "the task that waited was cancelled")
        }
        return try result.get()
    }

    /// What ``finish()`` returns or throws, also if the task that waits is cancelled.
    package func outcome() async -> Result<String, ChannelError> {
        await withCheckedContinuation { waiter in
            let result = status.withLock { status -> Result<String, ChannelError>? in
                if status.result == nil { status.waiters.append(waiter) }
                return status.result
            }
            if let result { waiter.resume(returning: result) }
        }
    }

    /// Waits until this side has nothing left to do for the transfer. For an incoming transfer that
    /// is done, this is when the sender has learned that everything is stored, or cannot learn it
    /// any more. Does not wait for the sender after ``cancel()``.
    package func waitUntilSettled() async { await status.withLock { $0.task }?.value }

    /// Whether an earlier transfer has stored everything, and there was still a note about it.
    package var wasStoredBefore: Bool { status.withLock { $0.wasStoredBefore } }

    func noteStoredBefore() { status.withLock { $0.wasStoredBefore = true } }

    /// Ends the transfer, and tells the peer. What the receiver has stays for a later transfer of
    /// the same file.
    public func cancel() {
        status.withLock { status in
            status.isCancelled = true
            status.task?.cancel()
        }
    }

    var isCancelled: Bool { status.withLock { $0.isCancelled } }

    func run(on loop: EventLoop, _ body: @escaping @Sendable () async -> Void) {
        let task = Task(executorPreference: loop) { await body() }
        let isCancelled = status.withLock { status in
            status.task = task
            return status.isCancelled
        }
        if isCancelled { task.cancel() }
    }

    /// Changes the progress, and passes it to the observers.
    ///
    /// - Parameter held: how many bytes the receiver had before the transfer.
    func update(held: UInt64 = 0, _ body: (inout Progress) -> Void) {
        var observers: [AsyncStream<Progress>.Continuation] = []
        var changed: Progress?
        status.withLock { status in
            guard status.result == nil else { return }
            var progress = status.progress
            body(&progress)
            progress.bytes = max(progress.bytes, status.progress.bytes)
            (progress.rate, progress.timeLeft) = status.meter.measure(
                progress.bytes, of: progress.totalBytes, held: held,
                isTransferring: progress.state == .transferring)
            guard progress != status.progress else { return }
            status.progress = progress
            observers = Array(status.observers.values)
            changed = progress
        }
        // Called without the lock, because the handler `onTermination` of a stream takes the lock.
        if let changed { for observer in observers { observer.yield(changed) } }
    }

    func end(_ result: Result<String, ChannelError>, _ failures: [Failure] = []) {
        typealias Waiter = CheckedContinuation<Result<String, ChannelError>, Never>
        typealias Ending = ([AsyncStream<Progress>.Continuation], [Waiter], Progress)
        let (observers, waiters, progress) = status.withLock { status -> Ending in
            guard status.result == nil else { return ([], [], status.progress) }
            status.result = result
            status.failures = failures
            if case .success = result {
                status.progress.state = .done
                if isIncoming, !status.wasStoredBefore {
                    // A sender may send less of a folder than it has offered.
                    status.progress.totalBytes = status.progress.bytes
                    status.progress.totalFiles = status.progress.files
                } else {
                    status.progress.bytes = status.progress.totalBytes
                }
            } else {
                status.progress.state = .failed
            }
            (status.progress.rate, status.progress.timeLeft) = (nil, nil)
            defer { (status.observers, status.waiters) = ([:], []) }
            return (Array(status.observers.values), status.waiters, status.progress)
        }
        for observer in observers {
            observer.yield(progress)
            observer.finish()
        }
        for waiter in waiters { waiter.resume(returning: result) }
    }
}

/// Measures the rate in bytes per second over the last three seconds.
struct RateMeter: Sendable {
    private var samples: [(time: ContinuousClock.Instant, bytes: UInt64)] = []
    /// How many bytes the receiver had before the transfer.
    private var held: UInt64 = 0
    /// The time over which the rate is measured.
    private static let span: Duration = .seconds(3)
    /// The longest time left that is reported. A `Duration` has room for about 10^20 seconds.
    private static let mostSecondsLeft = 1e12

    /// Records that the receiver has `bytes` of `total` bytes now. Returns the rate and the time that
    /// the rest takes.
    mutating func measure(
        _ bytes: UInt64, of total: UInt64, held: UInt64, isTransferring: Bool,
        now: ContinuousClock.Instant = .now
    ) -> (rate: Double?, timeLeft: Duration?) {
        guard isTransferring else {
            samples = []
            return (nil, nil)
        }
        let bytesLeft = total - min(total, bytes)
        // What the receiver had before was not transferred, and does not count for the rate.
        self.held = max(self.held, held)
        let bytes = bytes - min(bytes, self.held)
        // Less than 100 ms after the last sample, only the bytes of that sample are updated.
        if let last = samples.last, now - last.time < .milliseconds(100) {
            samples[samples.count - 1].bytes = bytes
        } else {
            samples.append((now, bytes))
        }
        while samples.count > 2, now - samples[0].time > Self.span { samples.removeFirst() }
        // Over less than 200 ms, a rate would say little.
        guard let first = samples.first, now - first.time >= .milliseconds(200) else {
            return (nil, nil)
        }
        let rate = Double(bytes - min(bytes, first.bytes)) / ((now - first.time) / .seconds(1))
        guard rate > 0 else { return (0, nil) }
        let secondsLeft = Double(bytesLeft) / rate
        return (rate, secondsLeft <= Self.mostSecondsLeft ? .seconds(secondsLeft) : nil)
    }
}
