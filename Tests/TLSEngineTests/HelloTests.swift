import BLESecChannelCore
import CBLESecOpenSSL
import TestSupport
import Testing

@testable import BLESecTLSEngine

/// A ClientHello whose extensions can be changed (RFC 8446 §4.1.2).
private struct ClientHello {
    /// The version, the random bytes, and the lists before the extensions.
    private let head: [UInt8]
    /// The extensions: the type and the content of each.
    var extensions: [(type: UInt16, content: [UInt8])] = []

    /// Reads a message that is alone in its record.
    init(_ record: [UInt8]) {
        // The headers of the record and of the message, a version and 32 random bytes. Four lists
        // follow: the session identifier, the suites, the compression methods, and the extensions.
        var rest = record.dropFirst(5 + 4 + 2 + 32)
        func takeList(_ lengthSize: Int) -> ArraySlice<UInt8> {
            let length: Int = rest.prefix(lengthSize).reduce(0) { $0 << 8 | Int($1) }
            let list = rest.dropFirst(lengthSize).prefix(length)
            rest = rest.dropFirst(lengthSize + length)
            return list
        }
        for lengthSize in [1, 2, 1] { _ = takeList(lengthSize) }
        head = Array(record[9..<rest.startIndex])
        rest = takeList(2)
        while rest.count >= 2 {
            let type = UInt16(rest[rest.startIndex]) << 8 | UInt16(rest[rest.startIndex + 1])
            rest = rest.dropFirst(2)
            extensions.append((type, Array(takeList(2))))
        }
    }

    /// Replaces the extension of this type, or adds it at the start, since `pre_shared_key` has to
    /// stay the last extension.
    mutating func set(_ type: UInt16, _ content: [UInt8]) {
        if let index = extensions.firstIndex(where: { $0.type == type }) {
            extensions[index].content = content
        } else {
            extensions.insert((type, content), at: 0)
        }
    }

    static func list(_ lengthSize: Int, _ content: [UInt8]) -> [UInt8] {
        (0..<lengthSize).reversed().map { UInt8(truncatingIfNeeded: content.count >> (8 * $0)) }
            + content
    }

    var body: [UInt8] {
        head
            + Self.list(
                2,
                extensions.flatMap { type, content in
                    [UInt8(type >> 8), UInt8(truncatingIfNeeded: type)] + Self.list(2, content)
                })
    }

    /// The message in records with at most `limit` bytes each.
    func records(of limit: Int = 16_384) -> [UInt8] {
        var rest = ([1] + Self.list(3, body))[...]
        var records: [UInt8] = []
        while !rest.isEmpty {
            records += [22, 3, 1] + Self.list(2, Array(rest.prefix(limit)))
            rest = rest.dropFirst(limit)
        }
        return records
    }
}

@Suite("ClientHello")
struct HelloTests {
    let authority: TestAuthority

    init() throws { authority = try TestAuthority() }

    private func hello(_ isNegotiated: Bool) throws -> ClientHello {
        var dialer = try TLSEngine(
            authority.context("dialer"), role: .dialer, isNegotiated: isNegotiated)
        return ClientHello(try dialer.nextHandshake() ?? [])
    }

    /// What an acceptor answers to these bytes: the error, or nil if it goes on with the handshake.
    private func failure(_ bytes: [UInt8], _ isNegotiated: Bool) throws -> ChannelError? {
        var acceptor = try TLSEngine(
            authority.context("acceptor"), role: .acceptor, isNegotiated: isNegotiated)
        do throws(ChannelError) {
            try acceptor.receiveHandshake(bytes.span)
        } catch {
            return error
        }
        if case .failing(let error) = acceptor.phase { return error }
        // The acceptor's flight begins with a ServerHello in a record.
        #expect(try acceptor.nextHandshake()?.first == 22)
        return nil
    }

    @Test("a dialer's ClientHello offers no compression of certificates (RFC 8879)")
    func certificateCompression() throws {
        let types = try hello(true).extensions.map(\.type)
        #expect(types.contains(51), "key_share")
        // Only OpenSSL from 3.2 on knows this extension.
        #expect(!types.contains(27), "compress_certificate")
        // SSL_OP_NO_TX_CERTIFICATE_COMPRESSION and SSL_OP_NO_RX_CERTIFICATE_COMPRESSION, with any
        // OpenSSL.
        let context = try authority.context("dialer")
        #expect(unsafe SSL_CTX_get_options(context.pointer) >> 32 & 3 == 3)
    }

    @Test("a ClientHello that announces more than 4 KiB is refused before the rest arrives")
    func announcedLength() throws {
        let header: [UInt8] = [1, 1, 0xFF, 0xC0]
        for pieceLength in 1...4 {
            var acceptor = try TLSEngine(
                authority.context("acceptor"), role: .acceptor, isNegotiated: true)
            for start in stride(from: 0, to: header.count, by: pieceLength) {
                let piece = Array(header[start...].prefix(pieceLength))
                try acceptor.receiveHandshake(([22, 3, 1] + ClientHello.list(2, piece)).span)
            }
            #expect(acceptor.phase == .failing(.tooLongMessage), "\(pieceLength)")
            // The alert illegal_parameter.
            #expect(try acceptor.nextHandshake() == [21, 3, 3, 0, 2, 2, 47])
        }
        // The message comes after a ClientHello that its last record completes.
        let complete = try hello(true).records()
        let end = complete.count - 4
        let first = [22, 3, 1] + ClientHello.list(2, Array(complete[5..<end]))
        let second = [22, 3, 1] + ClientHello.list(2, complete[end...] + header)
        #expect(try failure(first + second, true)?.code == .limitExceeded)
        // The length of the second message of a record counts, too.
        var lengths = AnnouncedLengths()
        let short: [UInt8] = [1, 0, 0, 2, 9, 9]
        let accepted = [
            short + [1, 0, 0x10, 0], [UInt8](repeating: 9, count: 4_096), short + [1, 0, 0x10, 1],
        ].map { lengths.areAccepted($0) }
        #expect(accepted == [true, true, false])
    }

    @Test("a ClientHello may have 4 KiB, and a longer one is refused", arguments: [true, false])
    func length(isNegotiated: Bool) throws {
        var hello = try hello(isNegotiated)
        #expect(try failure(hello.records(), isNegotiated) == nil)
        let padding: UInt16 = 21
        hello.set(padding, [])
        let room = 4_096 - hello.body.count
        for excess in [0, 1, 20_000] {
            hello.set(padding, [UInt8](repeating: 0, count: room + excess))
            #expect(hello.body.count == 4_096 + excess)
            let error = try failure(hello.records(), isNegotiated)
            #expect(error?.code == (excess == 0 ? nil : .limitExceeded), "\(excess)")
        }
    }

    /// Each list: the extension, a list as long as permitted, and a longer one.
    static let lists: [(name: String, type: UInt16, longest: [UInt8], longer: [UInt8])] = [
        ("supported_groups", 10, groups(63), groups(64)),
        ("certificate_authorities", 47, authorities(63), authorities(64)),
        ("status_request", 5, responders(41), responders(42)),
    ]
    private static func repeated(_ bytes: [UInt8], _ count: Int) -> [UInt8] {
        Array(repeating: bytes, count: count).flatMap(\.self)
    }
    /// X25519, and groups that nobody knows.
    private static func groups(_ count: Int) -> [UInt8] {
        ClientHello.list(2, repeated([0x7A, 0x7A], count - 1) + [0, 29])
    }
    /// Empty names.
    private static func authorities(_ count: Int) -> [UInt8] {
        ClientHello.list(2, repeated([0, 2, 0x30, 0], count))
    }
    /// Responders that are named by an empty key hash, and no extensions.
    private static func responders(_ count: Int) -> [UInt8] {
        [1] + ClientHello.list(2, repeated([0, 4, 0xA2, 2, 4, 0], count)) + [0, 0]
    }

    @Test("a ClientHello with a list that is too long is refused", arguments: [true, false])
    func lists(isNegotiated: Bool) throws {
        for (name, type, longest, longer) in Self.lists {
            var hello = try hello(isNegotiated)
            hello.set(type, longest)
            #expect(try failure(hello.records(), isNegotiated) == nil, "\(name)")
            hello.set(type, longer)
            let error = try failure(hello.records(), isNegotiated)
            #expect(error?.code == .limitExceeded, "\(name): \(String(describing: error))")
        }
    }

    @Test("a ClientHello in too many records is refused", arguments: [true, false])
    func records(isNegotiated: Bool) throws {
        let hello = try hello(isNegotiated)
        let length = 4 + hello.body.count
        // The shortest length of records with which 64 records, the permitted number, are enough.
        let shortest = (length + 63) / 64
        #expect((length + shortest - 1) / shortest <= 64 && length / (shortest - 1) > 64)
        #expect(try failure(hello.records(of: shortest), isNegotiated) == nil)
        let error = try failure(hello.records(of: shortest - 1), isNegotiated)
        #expect(error?.code == .limitExceeded)
    }
}
