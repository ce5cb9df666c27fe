internal import BLESecChannelCore
internal import BLESecPrimitives

/// A channel's engine, and the bytes between the engine and the link.
///
/// This is a class, so that one call can change the engine and a buffer: Swift checks exclusive
/// access to each property of a class separately. Swift makes this check at run time, and the check
/// took a fifth of the time of a 64-byte round trip. So release builds omit the check for the
/// properties that each message uses, here and elsewhere. Tests run with the check.
final class RecordLayer {
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var engine: Engine
    /// Bytes from the link that are not processed yet.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var inbound = WireBuffer(pool: .incoming)
    /// Bytes that the link has not taken yet.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var outbound = WireBuffer(pool: .outgoing)
    /// The records and bytes (without types) that were sealed under the current sending key.
    private(set) var sending = DirectionCount()
    /// The records and bytes (with types) that were opened under the current receiving key.
    var receiving = DirectionCount()

    init(_ engine: consuming Engine = .none) { self.engine = engine }
    /// Begins to use `engine`; the old engine's keys are wiped.
    func replaceEngine(_ engine: consuming Engine) { self.engine = engine }
    /// Ends the engine: its keys are wiped. Bytes for the link stay.
    func endEngine() { engine = .none }

    /// Ends the engine and discards all bytes.
    func end() {
        engine = .none
        inbound.removeAll()
        outbound.removeAll()
    }

    // MARK: - Handshake

    /// Appends this side's next handshake message to ``outbound``, and returns the message; nil if
    /// there is none now.
    func sendHandshake() throws(ChannelError) -> [UInt8]? {
        guard let message = try engine.nextHandshake() else { return nil }
        try outbound.append(engine.framesHandshake ? Self.framed(message) : message)
        return message
    }

    /// The message, preceded by its u16 length.
    static func framed(_ message: [UInt8]) -> [UInt8] {
        [UInt8(truncatingIfNeeded: message.count >> 8), UInt8(truncatingIfNeeded: message.count)]
            + message
    }

    /// Removes a message with a u16 length prefix from ``inbound`` and returns the message, or returns
    /// `nil` while the message is incomplete. Throws `protocolViolation` if the length is 0 or greater
    /// than `bound`.
    func takeFramed(atMost bound: Int) throws(ChannelError) -> [UInt8]? {
        let message = try inbound.withBytes { bytes throws(ChannelError) -> [UInt8]? in
            guard bytes.count >= 2 else { return nil }
            let length = Int(bytes[0]) << 8 | Int(bytes[1])
            guard (1...bound).contains(length) else {
                throw ChannelError(
                    .protocolViolation,
                    "the peer announces a handshake message of \(length) bytes, and 1 to "
                        + "\(bound) are allowed")
            }
            guard bytes.count >= 2 + length else { return nil }
            return bytes.span.array(in: 2..<2 + length)
        }
        if let message { inbound.consume(2 + message.count) }
        return message
    }

    /// Passes all inbound bytes to an engine that reads a stream; returns whether it consumed any.
    func receiveHandshake() throws(ChannelError) -> Bool {
        let consumed = try inbound.withBytes { bytes throws(ChannelError) in
            try engine.receiveHandshake(bytes.span)
        }
        inbound.consume(consumed)
        return consumed > 0
    }

    // MARK: - Records

    /// Seals a record of direct mode, which has no type.
    func seal(_ payload: Span<UInt8>) throws(ChannelError) {
        try sealPlaintext(Span(), payload)
        sending.add(payload.count)
    }

    /// Seals a record of `type`.
    func seal(_ type: RecordType, _ payload: Span<UInt8>) throws(ChannelError) {
        let head: [1 of UInt8] = [type.rawValue]
        try seal(head.span, payload)
    }

    /// Seals a record whose plaintext is `head` followed by `payload`. The first byte is the type.
    func seal(_ head: Span<UInt8>, _ payload: Span<UInt8>) throws(ChannelError) {
        try sealPlaintext(head, payload)
        sending.add(head.count + payload.count - 1)
    }

    private func sealPlaintext(
        _ head: Span<UInt8>, _ payload: Span<UInt8>
    ) throws(ChannelError) {
        let length = engine.sealedLength(head.count + payload.count)
        try outbound.append(room: length) { space throws(ChannelError) in
            try engine.seal(head, payload, into: &space)
        }
    }

    func seal(_ type: RecordType, _ payload: [UInt8]) throws(ChannelError) {
        try seal(type, payload.span)
    }

    /// Seals a number as eight bytes, big-endian, without an allocation.
    func seal(_ type: RecordType, number: UInt64) throws(ChannelError) {
        var bytes: [8 of UInt8] = .init(repeating: 0)
        for index in 0..<8 { bytes[index] = UInt8(truncatingIfNeeded: number >> (56 - 8 * index)) }
        try seal(type, bytes.span)
    }

    /// Opens the record at the start of ``inbound`` in place, or returns `nil` while the record is
    /// incomplete. The caller consumes the record.
    func open() throws(ChannelError) -> OpenedRecord? {
        let record = try inbound.withBytes { bytes throws(ChannelError) in
            try engine.open(&bytes)
        }
        if let plaintext = record?.plaintext { receiving.add(plaintext.count) }
        return record
    }

    /// Changes the sending key. A `rekey` record announces this first, unless the engine itself
    /// does.
    func rekeySending() throws(ChannelError) {
        if !engine.announcesRekey { try seal(.rekey, []) }
        try engine.rekeySending()
        sending = DirectionCount()
    }

    func rekeyReceiving() throws(ChannelError) {
        try engine.rekeyReceiving()
        receiving = DirectionCount()
    }
}

/// The records and bytes of one direction under its current key.
struct DirectionCount {
    var records: UInt64 = 0
    var bytes: UInt64 = 0

    mutating func add(_ count: Int) {
        records += 1
        bytes += UInt64(count)
    }
}
