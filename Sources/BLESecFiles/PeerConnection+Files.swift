public import BLESec
public import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks
internal import BLESecLocking

extension PeerConnection {
    /// Begins to send a file, or a folder with all its contents. Returns once the file or the
    /// folder's contents are examined.
    ///
    /// What the receiver has from an earlier transfer of the same file at the same path is not sent
    /// again. Symbolic links in a folder are not followed.
    ///
    /// The transfer holds a thread and a descriptor until it ends, also while there is no link, so
    /// begin only a few transfers at a time. The transfer goes on even if the program does not keep
    /// the ``FileTransfer``.
    ///
    /// - Parameters:
    ///   - path: the file or folder.
    ///   - sendsHidden: whether files and folders inside a folder are sent, too, if their names
    ///     begin with a dot.
    ///   - onOmission: called for each file or folder inside the folder that cannot be sent.
    /// - Throws: `noSuchFile` when the file or folder cannot be read; `refused` for a name that
    ///   cannot be sent; `incomplete` when a folder has too many files or bytes; `limitExceeded`
    ///   when there are too many threads. Without `Guarantee.exactlyOnce`, the transfer fails with
    ///   `configuration`.
    public nonisolated func sendFile(
        _ path: String, sendsHidden: Bool = false,
        onOmission: @Sendable (FileTransfer.Failure) -> Void = { _ in }
    ) async throws(ChannelError) -> FileTransfer {
        guard let thread = BlockingThread.start() else {
            throw ChannelError(.limitExceeded, "there are too many threads")
        }
        let examined = await thread.run { () -> Result<Unshared<FileSource>, FileFailure> in
            Result { () throws(FileFailure) in
                Unshared(try FileSource(path, sendsHidden: sendsHidden))
            }
        }
        let source: Unshared<FileSource>
        switch examined {
        case .success(let found): source = found
        case .failure(let failure): throw ChannelError(failure)
        }
        let offer = source.value.offer
        for omission in source.value.omissions { onOmission(omission) }
        let transfer = FileTransfer(
            name: offer.name, isFolder: offer.isFolder, isIncoming: false, bytes: offer.bytes,
            files: Int(clamping: offer.files))
        if await status.state == .connected { transfer.update { $0.state = .waiting } }
        let sending = OutgoingFiles(
            connection: self, source: source, thread: thread, transfer: transfer)
        transfer.run(on: loop) { await sending.run() }
        return transfer
    }

    /// The files that the peer offers. The sequence ends when the peer has ended the connection and
    /// the program has received everything before that end, or when the connection is closed. Take
    /// the offers and receive the messages in concurrent tasks.
    public nonisolated var incomingFiles: AsyncStream<FileOffer> {
        AsyncStream { await self.nextFileOffer(nil) }
    }

    /// Does what ``incomingFiles`` does. The notes about stored files stay until the session ends.
    package nonisolated func incomingFiles(
        in session: ReceivingSession
    ) -> AsyncStream<FileOffer> {
        AsyncStream { await self.nextFileOffer(session) }
    }

    private nonisolated func nextFileOffer(_ session: ReceivingSession?) async -> FileOffer? {
        while let stream = await acceptStream(labelled: FileFrame.label) {
            // With another priority, a peer's files could delay its messages and other streams.
            guard stream.priority == .bulk else {
                await stream.giveUp(.violation)
                continue
            }
            guard let thread = BlockingThread.start() else {
                session?.noteOfferGivenUp()
                await stream.giveUp(.other)
                continue
            }
            let receiver = Unshared(FileReceiver())
            // Stays `violation` if the offer is malformed, or the stream ends without an offer.
            var reason = GiveUpReason.violation
            do {
                while let bytes = try await stream.read() {
                    let offer = try await thread.run {
                        Result { () throws(FileViolation) -> FileFrame.Offer? in
                            _ = try receiver.value.receive(bytes)
                            return receiver.value.offer
                        }
                    }.get()
                    guard let offer else { continue }
                    let key = await status.peer?.fingerprint?.digest ?? []
                    session?.begin(offer.id)
                    return FileOffer(offer, self, stream, receiver, thread, session, peer: key)
                }
            } catch {
                // The program does not know of this stream yet, so only the peer gets the error.
                if !(error is FileViolation) {
                    reason = Task.isCancelled ? .cancelled : .other
                    session?.noteOfferGivenUp()
                }
            }
            await stream.giveUp(reason)
        }
        return nil
    }
}

/// Carries a value that is not `Sendable` to the one thread that uses it.
@safe final class Unshared<Value>: @unchecked Sendable {
    // Sendable because only one thread uses the value, after the owner has passed it there.
    let value: Value

    init(_ value: Value) { self.value = value }
}

/// Why a side gives up a stream of files. The raw values are the stream's reset and stop codes.
enum GiveUpReason: UInt32 {
    case other = 0
    case cancelled = 1
    case violation = 2
}

extension PeerConnection.Stream {
    func giveUp(_ reason: GiveUpReason) async {
        await reset(code: reason.rawValue)
        await stop(code: reason.rawValue)
    }

    /// Ends this side's direction after a refusal, and waits until the sender has read the refusal
    /// and has ended its direction. Until then, up to 1 MiB that the sender sends is dropped.
    func endRefused() async {
        await finish()
        var left = 1 << 20
        while left > 0, let bytes = try? await read(), !Task.isCancelled { left -= bytes.count }
        await stop(code: GiveUpReason.other.rawValue)
    }
}

/// A file or folder that the peer offers. Only the first answer counts, be it
/// ``accept(into:_:)`` or ``refuse(_:_:)``.
public struct FileOffer: Sendable {
    /// The name that the peer gave to the file or folder. The name was not checked yet: do not use
    /// it as a path.
    public let name: String
    /// Whether the peer offers a folder.
    public let isFolder: Bool
    /// How many bytes there are, as the peer says.
    public let bytes: UInt64
    /// How many files there are, as the peer says.
    public let files: Int
    /// Identifies the file or folder: the peer offers the same one again with the same id.
    public let id: [UInt8]
    /// Differs if a name, a size, a time or a mode in the file or folder has changed, as the peer
    /// says.
    package let version: [UInt8]
    private let connection: PeerConnection
    private let stream: PeerConnection.Stream
    private let receiver: Unshared<FileReceiver>
    private let thread: BlockingThread
    private let session: ReceivingSession?
    /// The digest in the fingerprint of the peer's key; empty if the peer has no key.
    private let peer: [UInt8]
    /// Whether the offer was answered. All copies of the offer share this.
    private let isAnswered = Locked(false)

    /// How files are received.
    public struct Options: Sendable {
        /// Whether names may begin with a dot.
        public var allowsHidden = false
        /// Whether an existing file of the same name is replaced. Otherwise, the new file gets a
        /// number in its name.
        public var overwrites = false
        /// The most bytes that incomplete files of this peer may take in the folder.
        public var quota = UInt64.max

        /// The defaults.
        public init() {}
    }

    init(
        _ offer: FileFrame.Offer, _ connection: PeerConnection, _ stream: PeerConnection.Stream,
        _ receiver: Unshared<FileReceiver>, _ thread: BlockingThread,
        _ session: ReceivingSession?, peer: [UInt8]
    ) {
        // A name of more than 255 bytes is refused later. Its beginning is kept only to be shown.
        let isWhole = offer.name.utf8.count <= 255
        name = isWhole ? offer.name : FileName.shortened(offer.name, toBytes: 40) + "..."
        (isFolder, bytes) = (offer.isFolder, offer.bytes)
        (id, version) = (offer.id, offer.version)
        files = Int(clamping: offer.files)
        self.connection = connection
        self.stream = stream
        self.receiver = receiver
        self.thread = thread
        self.session = session
        self.peer = peer
    }

    /// Receives the file or folder into an existing folder. There it gets its final name when it is
    /// complete, its hashes are verified, and it is durable. Until then, it is in `.blesec-partial`
    /// in the existing folder, where a later transfer finds it for a week.
    ///
    /// If the offer was answered before, the returned transfer fails with `incomplete`.
    public func accept(into folder: String, _ options: Options = Options()) -> FileTransfer {
        accept(into: folder, options) {}
    }

    /// Does what ``accept(into:_:)`` does, and calls `whenStored` once, when everything is stored,
    /// before the sender learns of that. Does not call it if the transfer ends earlier.
    package func accept(
        into folder: String, _ options: Options, whenStored: @escaping @Sendable () async -> Void
    ) -> FileTransfer {
        let transfer = FileTransfer(
            name: name, isFolder: isFolder, isIncoming: true, bytes: bytes, files: files)
        guard markAnswered() else {
            transfer.end(
                .failure(ChannelError(FileFailure(.other, "the offer was answered before"))))
            return transfer
        }
        let receiving = IncomingFiles(
            connection: connection, stream: stream, receiver: receiver, thread: thread,
            transfer: transfer, folder: folder,
            rules: FileFolder.Rules(
                allowsHidden: options.allowsHidden, overwrites: options.overwrites,
                quota: options.quota), peer: peer, id: id, session: session,
            whenStored: whenStored)
        transfer.run(on: connection.loop) { await receiving.run() }
        return transfer
    }

    /// Refuses the file or folder. The peer gets `problem` and `text`. Returns when the peer has
    /// read the refusal or cannot read it any more, or has sent 1 MiB after the offer. Does nothing
    /// if the offer was answered before.
    public func refuse(_ problem: FileProblem = .declined, _ text: String = "") async {
        guard markAnswered() else { return }
        let answer = await thread.run { [receiver] in receiver.value.refuse(problem, text) }
        do {
            try await stream.write(answer)
            await stream.endRefused()
        } catch {
            await stream.giveUp(.other)
        }
    }

    /// Gives up the offer without an answer, because this side's program ends. The sender's
    /// transfer fails with `cancelled`. Does nothing if the offer was answered before.
    package func cancel() async {
        guard markAnswered() else { return }
        await stream.giveUp(.cancelled)
    }

    /// Waits until the peer no longer waits for an answer: it has withdrawn the offer, its process
    /// was replaced, or the connection is closed. Returns at once if the task is cancelled. Called
    /// before the answer.
    package func waitUntilGone() async {
        // This side has not ended its direction yet, so this call ends only with an error.
        try? await stream.waitUntilTaken()
    }

    /// Marks the offer as answered, and returns whether this is the first answer.
    private func markAnswered() -> Bool {
        isAnswered.withLock { isAnswered in
            defer { isAnswered = true }
            return !isAnswered
        }
    }
}
