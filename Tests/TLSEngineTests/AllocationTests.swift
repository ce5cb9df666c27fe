import BLESecChannelCore
import BLESecTLSEngine
import CAllocationCounter
import CBLESecOpenSSL
import TestSupport
import Testing

@Suite("Allocations for TLS records")
struct AllocationTests {
    @Test(
        "a record of any size needs no allocations except OpenSSL's own",
        .enabled(if: blesec_counts_allocations()))
    func records() throws {
        var pair = try EstablishedTests.pair()
        let raw = try RawPair(EstablishedTests.authority.get().folder)
        var buffer = [UInt8](repeating: 0, count: 70_000)
        for size in [0, 1, 64, 1_024, 16_381, 16_382, 65_518] {
            let payload = [UInt8](repeating: 1, count: size)
            // blesec adds a length of two bytes and a type of one byte to the payload.
            let content = [UInt8](repeating: 1, count: size + 3)
            // OpenSSL may allocate here what it keeps for later records, so these two records are
            // not counted.
            try Self.pass(payload, &pair, &buffer)
            try raw.pass(content)
            let start = blesec_allocations()
            for _ in 0..<100 { try Self.pass(payload, &pair, &buffer) }
            let afterEngines = blesec_allocations()
            for _ in 0..<100 { try raw.pass(content) }
            let afterOpenSSL = blesec_allocations()
            #expect(afterEngines - start == afterOpenSSL - afterEngines, "\(size) bytes")
        }
    }

    private static func pass(
        _ payload: [UInt8], _ pair: inout EnginePair, _ buffer: inout [UInt8]
    ) throws {
        let record = try unsafe buffer.withUnsafeMutableBufferPointer { bytes in
            var output = unsafe OutputSpan(buffer: bytes, initializedCount: 0)
            let head: [1 of UInt8] = [0]
            try pair.dialer.seal(head.span, payload.span, into: &output)
            let count = unsafe output.finalize(for: bytes)
            var sealed = unsafe MutableSpan(_unsafeElements: .init(rebasing: bytes[..<count]))
            return try pair.acceptor.open(&sealed)
        }
        guard record?.plaintext?.count == payload.count + 1 else {
            throw ChannelError(.internal, "the acceptor does not open the whole record")
        }
    }
}

/// Two OpenSSL connections with a pair of BIOs between them, without code of blesec.
@safe private final class RawPair {
    private let context: OpaquePointer?
    private var client: OpaquePointer?
    private var server: OpaquePointer?
    private var scratch = [UInt8](repeating: 0, count: 70_000)

    init(_ folder: ScratchFolder) throws {
        let context = unsafe SSL_CTX_new(TLS_method())
        unsafe self.context = context
        unsafe client = nil
        unsafe server = nil
        guard
            unsafe SSL_CTX_use_certificate_file(
                context, folder.file("dialer.pem"), SSL_FILETYPE_PEM) == 1,
            unsafe SSL_CTX_use_PrivateKey_file(
                context, folder.file("dialer.key"), SSL_FILETYPE_PEM) == 1
        else { throw ChannelError(.badKey, "OpenSSL does not load the certificate") }
        unsafe SSL_CTX_set_num_tickets(context, 0)
        var (clientBIO, serverBIO): (OpaquePointer?, OpaquePointer?)
        unsafe BIO_new_bio_pair(&clientBIO, 1 << 17, &serverBIO, 1 << 17)
        unsafe client = SSL_new(context)
        unsafe server = SSL_new(context)
        unsafe SSL_set_bio(client, clientBIO, clientBIO)
        unsafe SSL_set_bio(server, serverBIO, serverBIO)
        unsafe SSL_set_connect_state(client)
        unsafe SSL_set_accept_state(server)
        for _ in 0..<4 {
            unsafe SSL_do_handshake(client)
            unsafe SSL_do_handshake(server)
        }
    }

    deinit {
        unsafe SSL_free(client)
        unsafe SSL_free(server)
        unsafe SSL_CTX_free(context)
    }

    func pass(_ content: [UInt8]) throws {
        guard unsafe SSL_write(client, content, Int32(content.count)) == content.count else {
            throw ChannelError(.internal, "OpenSSL does not write")
        }
        var count = 0
        while count < content.count {
            let read = unsafe SSL_read(server, &scratch, Int32(scratch.count))
            guard read > 0 else { throw ChannelError(.internal, "OpenSSL does not read") }
            count += Int(read)
        }
    }
}
