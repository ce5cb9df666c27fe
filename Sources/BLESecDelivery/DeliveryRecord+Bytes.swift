/// The bytes of a record after its type; `docs/delivery.md`, "Bytes".
extension DeliveryRecord {
    /// The type byte of the channel's record that carries this one (`docs/wire-format.md`,
    /// "Records").
    package enum Kind: UInt8, Sendable, CaseIterable {
        case resume = 0x09
        case chunk, confirm, epoch, credit, finish
        case open, bytes, fin, reset, stop, limit, done, streams
    }

    /// Whether this record is a part of a message, and further parts follow.
    package var hasFurtherParts: Bool {
        if case .chunk(let chunk) = self { !chunk.isLast } else { false }
    }

    package var kind: Kind {
        switch self {
        case .resume: .resume
        case .chunk: .chunk
        case .confirm: .confirm
        case .epoch: .epoch
        case .credit: .credit
        case .finish: .finish
        case .stream(let record):
            switch record {
            case .open: .open
            case .bytes: .bytes
            case .fin: .fin
            case .reset: .reset
            case .stop: .stop
            case .limit: .limit
            case .done: .done
            case .streams: .streams
            }
        }
    }

    /// The longest header of a record with data, in bytes: three numbers of 8 bytes.
    package static let longestDataHeader = 24

    /// The type and the header of a record with data.
    package struct DataHead: Sendable, ByteOutput {
        /// The head, followed by unused bytes: room for the type and ``longestDataHeader``.
        package private(set) var bytes: [25 of UInt8] = .init(repeating: 0)
        package private(set) var count = 0

        package mutating func append(_ byte: UInt8) {
            bytes[count] = byte
            count += 1
        }
    }

    /// The type and the header before ``data``, made without memory from the heap; nil for a record
    /// of a kind that has no data.
    package var dataHead: DataHead? {
        var head = DataHead()
        head.append(kind.rawValue)
        return appendDataHeader(to: &head) ? head : nil
    }

    /// The bytes, without the type. Each number is at most ``Resume/greatestNumber``.
    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return bytes
    }

    /// The bytes of a message or a stream, with which the record ends; empty in other records.
    package var data: ArraySlice<UInt8> {
        switch self {
        case .chunk(let chunk): chunk.bytes
        case .stream(.bytes(_, _, let bytes)): bytes
        default: []
        }
    }

    /// Appends the bytes between the type and ``data``, and returns true; returns false for a
    /// record of a kind that has no data.
    private func appendDataHeader(to bytes: inout some ByteOutput) -> Bool {
        switch self {
        case .chunk(let chunk):
            bytes.append(number: chunk.number)
            bytes.append(number: UInt64(chunk.offset))
            bytes.append(number: UInt64(chunk.length))
        case .stream(.bytes(let id, let offset, _)):
            bytes.append(number: id)
            bytes.append(number: offset)
        default: return false
        }
        return true
    }

    /// Appends the bytes, without the type.
    package func append(to bytes: inout [UInt8]) {
        if appendDataHeader(to: &bytes) {
            bytes += data
            return
        }
        switch self {
        case .resume(let resume):
            for identifier in [resume.token, resume.peerToken, resume.epoch, resume.peerEpoch] {
                bytes.append(identifier)
            }
            for number in [
                resume.first, resume.positions.confirmed, resume.positions.held,
                UInt64(resume.positions.offset), resume.credit,
            ] { bytes.append(number: number) }
            bytes.append(resume.streams)
        case .chunk: break
        case .confirm(let epoch, let number):
            bytes.append(epoch)
            bytes.append(number: number)
        case .epoch(let epoch): bytes.append(epoch)
        case .credit(let credit): bytes.append(number: credit)
        case .finish(let number): bytes.append(number: number)
        case .stream(let record): bytes.append(record)
        }
    }

    /// Reads a record of this kind.
    ///
    /// - Throws: `violation` when bytes are missing or left over, or when a value is invalid or not
    ///   in its shortest form.
    package init(_ kind: Kind, _ bytes: [UInt8]) throws(DeliveryError) {
        try self.init(kind, bytes.span)
    }

    /// Reads a record of this kind. Its ``data`` is copied from the span.
    package init(_ kind: Kind, _ bytes: Span<UInt8>) throws(DeliveryError) {
        var position = 0
        switch kind {
        case .resume:
            let token = try bytes.identifier(at: &position)
            let peerToken = try bytes.identifier(at: &position)
            let epoch = try bytes.identifier(at: &position)
            let peerEpoch = try bytes.identifier(at: &position)
            let first = try bytes.number(at: &position)
            let positions = Positions(
                confirmed: try bytes.number(at: &position), held: try bytes.number(at: &position),
                offset: Int(try bytes.number(at: &position)))
            self = .resume(
                Resume(
                    token: token, peerToken: peerToken, epoch: epoch, first: first,
                    peerEpoch: peerEpoch, positions: positions,
                    credit: try bytes.number(at: &position),
                    streams: try bytes.streams(at: &position)))
        case .chunk:
            self = .chunk(
                Chunk(
                    number: try bytes.number(at: &position),
                    offset: Int(try bytes.number(at: &position)),
                    length: Int(try bytes.number(at: &position)),
                    bytes: bytes.remaining(from: &position)))
        case .confirm:
            self = .confirm(
                epoch: try bytes.identifier(at: &position),
                through: try bytes.number(at: &position))
        case .epoch: self = .epoch(try bytes.identifier(at: &position))
        case .credit: self = .credit(try bytes.number(at: &position))
        case .finish: self = .finish(number: try bytes.number(at: &position))
        case .open, .bytes, .fin, .reset, .stop, .limit, .done, .streams:
            self = .stream(try bytes.stream(kind, at: &position))
        }
        guard position == bytes.count else { throw .violation("a record with bytes left over") }
    }
}

extension Span<UInt8> {
    fileprivate func identifier(at position: inout Int) throws(DeliveryError) -> Identifier {
        var halves: (UInt64, UInt64) = (0, 0)
        for _ in 0..<8 { halves.0 = halves.0 << 8 | UInt64(try byte(at: &position)) }
        for _ in 0..<8 { halves.1 = halves.1 << 8 | UInt64(try byte(at: &position)) }
        return Identifier(high: halves.0, low: halves.1)
    }

    fileprivate func streams(at position: inout Int) throws(DeliveryError) -> StreamSummary {
        var streams = StreamSummary(
            window: try number(at: &position), firstLimit: try number(at: &position),
            peerToken: try identifier(at: &position), opened: try number(at: &position),
            limit: try number(at: &position))
        let count = try number(at: &position)
        guard count <= StreamSummary.mostEntries else { throw .violation("too many streams") }
        for _ in 0..<count {
            let id = try number(at: &position)
            let progress: StreamSummary.Progress
            switch try number(at: &position) {
            case 0:
                progress = .receiving(
                    count: try number(at: &position), limit: try number(at: &position))
            case 1: progress = .complete
            case 2: progress = .done
            default: throw .violation("a stream in an unknown state")
            }
            streams.entries.append(StreamSummary.Entry(id: id, progress))
        }
        return streams
    }

    fileprivate func stream(
        _ kind: DeliveryRecord.Kind, at position: inout Int
    ) throws(DeliveryError) -> StreamRecord {
        // The stream's id; in the record `streams`, the limit.
        let first = try number(at: &position)
        switch kind {
        case .open:
            let value = try number(at: &position)
            guard let priority = UInt8(exactly: value).flatMap(FramePriority.init(rawValue:))
            else { throw .violation("an unknown priority") }
            let bytes = remaining(from: &position)
            guard bytes.count <= StreamRecord.longestLabel,
                let label = String(validating: bytes, as: UTF8.self)
            else { throw .violation("a label that is too long or not UTF-8") }
            return .open(id: first, priority, label: label)
        case .bytes:
            return .bytes(
                id: first, offset: try number(at: &position), remaining(from: &position)[...])
        case .fin: return .fin(id: first, size: try number(at: &position))
        case .reset: return .reset(id: first, code: try code(at: &position))
        case .stop: return .stop(id: first, code: try code(at: &position))
        case .limit:
            return .limit(
                id: first, received: try number(at: &position),
                limit: try number(at: &position))
        case .done: return .done(id: first)
        default: return .streams(limit: first)
        }
    }

    private func code(at position: inout Int) throws(DeliveryError) -> UInt32 {
        guard let code = UInt32(exactly: try number(at: &position)) else {
            throw .violation("a code of more than 32 bits")
        }
        return code
    }

    fileprivate func remaining(from position: inout Int) -> [UInt8] {
        let remaining = extracting(position..<count)
        position = count
        return unsafe remaining.withUnsafeBufferPointer { unsafe Array($0) }
    }
}

extension [UInt8] {
    fileprivate mutating func append(_ identifier: Identifier) {
        for half in [identifier.high, identifier.low] {
            for shift in stride(from: 56, through: 0, by: -8) {
                append(UInt8(truncatingIfNeeded: half >> UInt64(shift)))
            }
        }
    }

    fileprivate mutating func append(_ streams: StreamSummary) {
        append(number: streams.window)
        append(number: streams.firstLimit)
        append(streams.peerToken)
        append(number: streams.opened)
        append(number: streams.limit)
        append(number: UInt64(streams.entries.count))
        for entry in streams.entries {
            append(number: entry.id)
            switch entry.progress {
            case .receiving(let count, let limit):
                for number in [0, count, limit] { append(number: number) }
            case .complete: append(number: 1)
            case .done: append(number: 2)
            }
        }
    }

    fileprivate mutating func append(_ record: StreamRecord) {
        switch record {
        case .open(let id, let priority, let label):
            append(number: id)
            append(number: UInt64(priority.rawValue))
            self += label.utf8
        case .bytes: break
        case .fin(let id, let size):
            append(number: id)
            append(number: size)
        case .reset(let id, let code), .stop(let id, let code):
            append(number: id)
            append(number: UInt64(code))
        case .limit(let id, let received, let limit):
            append(number: id)
            append(number: received)
            append(number: limit)
        case .done(let id): append(number: id)
        case .streams(let limit): append(number: limit)
        }
    }
}
