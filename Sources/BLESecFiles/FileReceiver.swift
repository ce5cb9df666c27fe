/// The receiver's end of a stream of files. It does not use the stream: its owner passes the peer's
/// bytes to ``receive(_:)``, and sends what the calls return. Used on one thread.
final class FileReceiver {
    /// The progress of the transfer.
    struct State: Sendable, Equatable {
        /// How many bytes are written, or were held or stored before.
        var received: UInt64 = 0
        /// How many bytes of the announced files were held or stored before.
        var held: UInt64 = 0
        /// How many files have ended, stored or not.
        var ended = 0
        var failures = FailureList()
        /// The name under which everything is stored; nil until then.
        var name: String?
    }

    private enum Phase {
        case awaitingOffer
        case offered
        case receiving(FileReception)
        case refused(FileFailure)
        /// Everything that was offered is stored. There is a note about the offer in the folder.
        case stored(State, in: FileFolder)
        /// Nothing more comes.
        case closed(State)
    }

    private(set) var offer: FileFrame.Offer?
    private var phase = Phase.awaitingOffer
    private var reader = FileFrameReader()

    var state: State {
        switch phase {
        case .awaitingOffer, .offered, .refused: State()
        case .receiving(let reception): reception.state
        case .stored(let state, in: _), .closed(let state): state
        }
    }

    /// Whether everything that was offered is stored; false again after ``forget()``.
    var isDone: Bool { if case .stored = phase { true } else { false } }
    /// Whether an offer waits for ``accept(into:)`` or ``refuse(_:_:)``.
    var hasOffer: Bool { if case .offered = phase { true } else { false } }
    /// Why this side has refused the offer; nil if it has not.
    var refusal: FileFailure? { if case .refused(let failure) = phase { failure } else { nil } }

    // MARK: - The offer

    /// Accepts the offer. Returns the bytes for the peer.
    func accept(into folder: FileFolder) -> [UInt8] {
        guard hasOffer, let offer else { return [] }
        do throws(FileFailure) {
            phase = .receiving(try FileReception(offer, in: folder))
            return bytes(.accept)
        } catch {
            folder.removeEmpty()
            let failure = Self.asReported(error)
            return refuse(failure.problem, failure.text)
        }
    }

    func refuse(_ problem: FileProblem, _ text: String) -> [UInt8] {
        phase = .refused(FileFailure(problem, text.isEmpty ? problem.meaning : text))
        return bytes(.refuse(problem, text))
    }

    /// The failure as it is reported to the peer and to this side's program: "cannot read" becomes
    /// "cannot write", because a sender would take "cannot read" for a problem with its own files.
    static func asReported(_ failure: FileFailure) -> FileFailure {
        failure.problem == .cannotRead ? FileFailure(.cannotWrite, failure.text) : failure
    }

    private func bytes(_ frame: FileFrame) -> [UInt8] {
        var bytes: [UInt8] = []
        frame.append(to: &bytes)
        return bytes
    }

    // MARK: - Receiving

    /// Takes bytes from the peer, and returns bytes for the peer.
    func receive(_ bytes: [UInt8]) throws(FileViolation) -> [UInt8] {
        guard refusal == nil else { return [] }
        reader.append(bytes)
        // The types below `accept` are those that a sender sends.
        while let frame = try reader.next(
            where: { $0.rawValue < FileFrame.Kind.accept.rawValue })
        {
            switch (frame, phase) {
            case (.offer(let offer), .awaitingOffer):
                try check(offer)
                self.offer = offer
                phase = .offered
            case (.offer, _): throw FileViolation("a second offer")
            case (_, .receiving(let reception)): try reception.receive(frame)
            default: throw FileViolation("a file without an offer")
            }
        }
        guard case .receiving(let reception) = phase else { return [] }
        return reception.takeDueAnswers()
    }

    private func check(_ offer: FileFrame.Offer) throws(FileViolation) {
        guard offer.bytes <= FileFrame.greatestSizeOrTime,
            offer.files <= UInt64(FileSource.mostEntries), offer.isFolder || offer.files == 1
        else { throw FileViolation("an offer of too many files or bytes") }
    }

    /// Gives everything its final name. Called when the peer has ended its direction of the stream.
    func finish() throws(FileViolation) -> [UInt8] {
        guard refusal == nil else { return [] }
        guard case .receiving(let reception) = phase, !reader.isMidFrame else {
            throw FileViolation("an end in the middle of a file")
        }
        if try reception.finish() { phase = .stored(reception.state, in: reception.folder) }
        return reception.takeAnswers()
    }

    /// Hashes bytes that are not hashed yet, and makes files durable that have been complete for a
    /// second. Called four times a second. Returns bytes for the peer.
    func tick() -> [UInt8] {
        guard case .receiving(let reception) = phase else { return [] }
        reception.tick()
        return reception.takeAnswers()
    }

    // MARK: - The end

    /// Removes the note about the stored offer, and the folders of incomplete files if they are
    /// empty. Called when the peer knows that everything is stored.
    func forget() {
        guard case .stored(let state, in: let folder) = phase, let offer else { return }
        folder.forget([offer.id])
        phase = .closed(state)
    }

    /// Removes the folders that hold nothing for a later transfer. Called when nothing more comes.
    func close() {
        guard case .receiving(let reception) = phase else { return }
        reception.close()
        phase = .closed(reception.state)
    }
}
