/// The bytes of a record behind its type; `docs/delivery.md`, "Bytes".
extension DeliveryRecord {
    /// The type of the channel's record (`docs/wire-format.md`, "Records").
    package enum Kind: UInt8, Sendable, CaseIterable {
        case resume = 0x09
        case chunk, confirm, epoch, credit, finish
    }

    package var kind: Kind {
        switch self {
        case .resume: .resume
        case .chunk: .chunk
        case .confirm: .confirm
        case .epoch: .epoch
        case .credit: .credit
        case .finish: .finish
        }
    }

    /// The most bytes of a chunk's record that are not the message's: three numbers.
    package static let longestChunkHeader = 24

    /// The bytes, without the type. Each number is at most ``Resume/greatestNumber``.
    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        switch self {
        case .resume(let resume):
            for identifier in [resume.token, resume.peerToken, resume.epoch, resume.peerEpoch] {
                bytes.append(identifier)
            }
            for number in [
                resume.first, resume.positions.confirmed, resume.positions.held,
                UInt64(resume.positions.offset), resume.credit,
            ] { bytes.append(number: number) }
        case .chunk(let chunk):
            bytes.reserveCapacity(chunk.bytes.count + Self.longestChunkHeader)
            bytes.append(number: chunk.number)
            bytes.append(number: UInt64(chunk.offset))
            bytes.append(number: UInt64(chunk.length))
            bytes += chunk.bytes
        case .confirm(let epoch, let number):
            bytes.append(epoch)
            bytes.append(number: number)
        case .epoch(let epoch): bytes.append(epoch)
        case .credit(let credit): bytes.append(number: credit)
        case .finish(let number): bytes.append(number: number)
        }
        return bytes
    }

    /// Reads a record of this kind.
    ///
    /// - Throws: `violation` when bytes are missing, are left over, or are not in the only form.
    package init(_ kind: Kind, _ bytes: [UInt8]) throws(DeliveryError) {
        var reader = Reader(bytes: bytes[...])
        switch kind {
        case .resume:
            let token = try reader.identifier()
            let peerToken = try reader.identifier()
            let epoch = try reader.identifier()
            let peerEpoch = try reader.identifier()
            let first = try reader.number()
            let positions = Positions(
                confirmed: try reader.number(), held: try reader.number(),
                offset: Int(try reader.number()))
            self = .resume(
                Resume(
                    token: token, peerToken: peerToken, epoch: epoch, first: first,
                    peerEpoch: peerEpoch, positions: positions, credit: try reader.number()))
        case .chunk:
            self = .chunk(
                Chunk(
                    number: try reader.number(), offset: Int(try reader.number()),
                    length: Int(try reader.number()), bytes: reader.takeAll()))
        case .confirm:
            self = .confirm(epoch: try reader.identifier(), try reader.number())
        case .epoch: self = .epoch(try reader.identifier())
        case .credit: self = .credit(try reader.number())
        case .finish: self = .finish(try reader.number())
        }
        guard reader.bytes.isEmpty else { throw .violation("a record with bytes left over") }
    }

    private struct Reader {
        var bytes: ArraySlice<UInt8>

        mutating func byte() throws(DeliveryError) -> UInt8 {
            guard let byte = bytes.popFirst() else { throw Self.tooShort }
            return byte
        }

        /// A number in the form of RFC 9000 §16, in as few bytes as possible.
        mutating func number() throws(DeliveryError) -> UInt64 {
            let first = try byte()
            let length = 1 << Int(first >> 6)
            var number = UInt64(first & 0x3F)
            for _ in 1..<length { number = number << 8 | UInt64(try byte()) }
            guard [UInt8].length(of: number) == length else {
                throw .violation("a number in more bytes than it needs")
            }
            return number
        }

        mutating func identifier() throws(DeliveryError) -> Identifier {
            var halves: (UInt64, UInt64) = (0, 0)
            for _ in 0..<8 { halves.0 = halves.0 << 8 | UInt64(try byte()) }
            for _ in 0..<8 { halves.1 = halves.1 << 8 | UInt64(try byte()) }
            return Identifier(high: halves.0, low: halves.1)
        }

        mutating func takeAll() -> ArraySlice<UInt8> {
            defer { bytes = [] }
            return bytes
        }

        private static var tooShort: DeliveryError { .violation("a record that is too short") }
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

    /// How many bytes a number takes in the form of RFC 9000 §16.
    fileprivate static func length(of number: UInt64) -> Int {
        switch number {
        case ..<(1 << 6): 1
        case ..<(1 << 14): 2
        case ..<(1 << 30): 4
        default: 8
        }
    }

    fileprivate mutating func append(number: UInt64) {
        precondition(number <= Resume.greatestNumber, "a number has at most 62 bits")
        let length = Self.length(of: number)
        let prefix = UInt64(length.trailingZeroBitCount) << UInt64(8 * length - 2)
        for shift in stride(from: 8 * (length - 1), through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: (number | prefix) >> UInt64(shift)))
        }
    }
}
