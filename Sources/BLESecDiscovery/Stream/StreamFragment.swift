/// A fragment of the byte stream over GATT: the value of one write, or of one notification.
///
/// `u8 kind · u16 stream · u16 number · u16 limit · payload`, as in docs/wire-format.md. Numbers
/// count modulo 2^16.
struct StreamFragment: Sendable, Hashable {
    enum Kind: UInt8 {
        /// The dialer opens a stream, or the listener accepts it. The payload is
        /// `u8 version · u16 size`; see ``StreamFragment/acceptedSize``.
        case open = 1
        /// One or more bytes of the stream.
        case data = 2
        /// Nothing but a new limit.
        case grant = 3
        /// The sender has ended the stream; the fragment's number follows that of the last data
        /// fragment.
        case end = 4
    }

    /// The stream version that this code supports.
    static let version: UInt8 = 1
    /// The number of bytes before the payload.
    static let headerSize = 7
    /// The value size that every device supports, in bytes: the smallest ATT MTU, 23, less 3.
    static let smallestSize = 20
    /// The largest value that is sent or accepted, in bytes. (bluetoothd drops a value of 512 bytes
    /// silently.)
    static let largestSize = 508

    let kind: Kind
    /// The stream's number, which distinguishes it from earlier streams.
    let stream: UInt16
    /// The fragment's number, counted by its sender.
    let number: UInt16
    /// The number of the first fragment that the sender does not accept yet.
    let limit: UInt16
    var payload: ArraySlice<UInt8> = []

    init(
        _ kind: Kind, stream: UInt16, number: UInt16, limit: UInt16,
        payload: ArraySlice<UInt8> = []
    ) {
        self.kind = kind
        self.stream = stream
        self.number = number
        self.limit = limit
        self.payload = payload
    }

    /// Reads a value; nil unless it is a valid fragment.
    init?(_ bytes: [UInt8]) {
        guard (Self.headerSize...Self.largestSize).contains(bytes.count),
            let kind = Kind(rawValue: bytes[0])
        else { return nil }
        func number(at index: Int) -> UInt16 {
            UInt16(bytes[index]) << 8 | UInt16(bytes[index + 1])
        }
        self.init(
            kind, stream: number(at: 1), number: number(at: 3), limit: number(at: 5),
            payload: bytes[Self.headerSize...])
        switch kind {
        case .open: if acceptedSize == nil { return nil }
        case .data: if payload.isEmpty { return nil }
        case .grant, .end: if !payload.isEmpty { return nil }
        }
    }

    /// The fragment as the value of a write or a notification.
    var bytes: [UInt8] {
        var bytes: [UInt8] = [kind.rawValue]
        bytes.reserveCapacity(Self.headerSize + payload.count)
        for number in [stream, number, limit] {
            bytes.append(UInt8(truncatingIfNeeded: number >> 8))
            bytes.append(UInt8(truncatingIfNeeded: number))
        }
        bytes.append(contentsOf: payload)
        return bytes
    }

    /// The size in bytes of the largest value that the sender of an `open` accepts; nil unless this
    /// is a valid `open`.
    var acceptedSize: Int? {
        let bytes = Array(payload)
        guard kind == .open, bytes.count >= 3, bytes[0] == Self.version else { return nil }
        let size = Int(bytes[1]) << 8 | Int(bytes[2])
        return size < Self.smallestSize ? nil : min(size, Self.largestSize)
    }

    static func openingPayload(acceptedSize size: Int) -> ArraySlice<UInt8> {
        [version, UInt8(truncatingIfNeeded: size >> 8), UInt8(truncatingIfNeeded: size)]
    }
}
