import BLESecChannelCore
import CBLESecOpenSSL
import TestSupport
import Testing

@testable import BLESec

/// A peer that uses OpenSSL directly for TLS, so that a test can choose any certificate and any
/// behaviour. The other side is a ``ChannelMachine``, the victim.
@safe final class MaliciousTLSPeer {
    /// How the malicious peer behaves.
    struct Behaviour: Sendable {
        /// The name, without extension, of the files with the certificate and its key; `nil` if the
        /// peer has no certificate.
        var certificate: String? = "dialer"
        /// A certificate in DER form to send instead of the one in the file.
        var leaf: [UInt8]?
        /// The names, without extension, of the files with the certificates to send after the
        /// peer's own.
        var chain: [String] = []
        var newestVersion = TLS1_3_VERSION
        /// Whether a dialer sends ALPN with the name `blesec/1`.
        var sendsALPN = true
        var groups = "X25519"
        /// Whether an acceptor requests the dialer's certificate.
        var requestsCertificate = true
        /// The signature algorithms that an acceptor accepts from the dialer; OpenSSL's if empty.
        var acceptedSignatures = ""
    }

    let role: ChannelRole
    var victim: ChannelMachine
    /// The present time, in nanoseconds.
    var now: UInt64 = 1_000_000_000
    private let context: OpaquePointer?
    private let ssl: OpaquePointer?
    private let input: OpaquePointer?
    private let output: OpaquePointer?
    /// The bytes that the victim has sent and that are not a complete TLS record yet.
    private var incoming: [UInt8] = []
    private var hasNegotiated = false
    private var transcript = NegotiationTranscript(context: [])
    /// The plaintext from the victim that is not a complete record of blesec/1 yet.
    private var plaintext: [UInt8] = []
    /// The TLS records that the victim has sent, each with its header.
    private(set) var records: [[UInt8]] = []
    /// The number of the alert that the victim has sent, if any.
    private(set) var alert: Int32?
    /// The records of blesec/1 that the victim has sent.
    private(set) var opened: [(type: RecordType, payload: [UInt8])] = []
    /// The types of the records in ``opened``.
    var types: [RecordType] { opened.map(\.type) }
    /// Whether the malicious peer's own handshake is over.
    private(set) var isHandshakeDone = false
    /// Changes each flight before it is sent.
    var tamper: ([UInt8]) -> [UInt8] = { $0 }
    /// The flights that the malicious peer has sent, after ``tamper``.
    private(set) var flights: [[UInt8]] = []

    init(
        _ role: ChannelRole, _ behaviour: Behaviour, in folder: ScratchFolder,
        victim configuration: ChannelConfiguration
    ) throws {
        self.role = role
        victim = ChannelMachine(
            role: role.peer, configuration: configuration, maximumSDU: 16_384, now: now)
        let context = unsafe SSL_CTX_new(TLS_method())
        unsafe SSL_CTX_set_security_level(context, 0)
        unsafe self.context = context
        unsafe blesec_ssl_context_newest_version(context, behaviour.newestVersion)
        #expect(unsafe blesec_ssl_context_groups(context, behaviour.groups) == 1)
        if let name = behaviour.certificate {
            try unsafe Self.loadCertificates(name, behaviour, folder, context)
        }
        unsafe ssl = SSL_new(context)
        unsafe input = BIO_new(BIO_s_mem())
        unsafe output = BIO_new(BIO_s_mem())
        unsafe SSL_set_bio(ssl, input, output)
        let protocols: [UInt8] = Array("\u{8}blesec/1".utf8)
        switch role {
        case .dialer:
            unsafe SSL_set_connect_state(ssl)
            if behaviour.sendsALPN {
                unsafe SSL_set_alpn_protos(ssl, protocols, UInt32(protocols.count))
            }
        case .acceptor:
            unsafe SSL_set_accept_state(ssl)
            if behaviour.requestsCertificate {
                unsafe SSL_set_verify(ssl, SSL_VERIFY_PEER) { _, _ in 1 }
            }
            if !behaviour.acceptedSignatures.isEmpty {
                var list = behaviour.acceptedSignatures.utf8CString
                let result = unsafe list.withUnsafeMutableBytes {
                    unsafe SSL_ctrl(ssl, SSL_CTRL_SET_CLIENT_SIGALGS_LIST, 0, $0.baseAddress)
                }
                #expect(result == 1)
            }
            unsafe SSL_CTX_set_alpn_select_cb(
                context,
                { _, chosen, length, offered, _, _ in
                    unsafe chosen?.pointee = offered.map { unsafe $0 + 1 }
                    unsafe length?.pointee = 8
                    return SSL_TLSEXT_ERR_OK
                }, nil)
        }
        try victim.begin()
    }

    deinit {
        unsafe SSL_free(ssl)
        unsafe SSL_CTX_free(context)
        ERR_clear_error()
    }

    /// Loads the certificate and the key in the files `name`, and the certificates of the chain.
    private static func loadCertificates(
        _ name: String, _ behaviour: Behaviour, _ folder: ScratchFolder, _ context: OpaquePointer?
    ) throws {
        if let leaf = behaviour.leaf {
            #expect(
                unsafe SSL_CTX_use_certificate_ASN1(context, Int32(leaf.count), leaf) == 1)
        } else {
            #expect(
                unsafe SSL_CTX_use_certificate_file(
                    context, folder.file("\(name).pem"), SSL_FILETYPE_PEM) == 1)
        }
        #expect(
            unsafe SSL_CTX_use_PrivateKey_file(
                context, folder.file("\(name).key"), SSL_FILETYPE_PEM) == 1)
        for intermediate in behaviour.chain {
            let file = unsafe BIO_new_file(folder.file("\(intermediate).pem"), "r")
            let certificate = unsafe PEM_read_bio_X509(file, nil, nil, nil)
            unsafe BIO_free(file)
            #expect(unsafe blesec_ssl_context_add_intermediate(context, certificate) == 1)
            unsafe X509_free(certificate)
        }
    }

    /// Runs the handshake: exchanges bytes in ten rounds, more than a handshake needs. The
    /// malicious peer sends at most `limit` flights in all.
    func run(flights limit: Int = .max) throws {
        if role == .acceptor { collect() }
        for _ in 0..<10 {
            advance()
            let bytes = take()
            if !bytes.isEmpty, flights.count < limit { send(bytes) }
            collect()
        }
    }

    /// A malicious peer whose victim is ready.
    static func ready(
        _ role: ChannelRole = .dialer, change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> MaliciousTLSPeer {
        let fixture = try CertificateFixture.shared()
        var configuration = try fixture.configuration(role.peer)
        change(&configuration)
        let peer = try MaliciousTLSPeer(
            role, Behaviour(certificate: role == .dialer ? "dialer" : "acceptor"),
            in: fixture.authority.folder, victim: configuration)
        try peer.run()
        peer.send(.ready, peer.transcript.ready(from: role))
        #expect(peer.isVictimReady)
        return peer
    }

    /// Sends a record of blesec/1 as one TLS record.
    func send(_ type: RecordType, _ payload: [UInt8] = []) { write(Self.record(type, payload)) }

    /// A record of blesec/1 before it is sealed.
    static func record(_ type: RecordType, _ payload: [UInt8] = []) -> [UInt8] {
        MaliciousNoisePeer.framed([type.rawValue] + payload)
    }

    /// Sends `bytes` unchanged as TLS application data, without the length and the type of a record
    /// of blesec/1, and reads what the victim sends.
    func write(_ bytes: [UInt8]) {
        deliver(sealed(bytes))
        advance()
    }

    /// Returns application data as TLS records. Any other bytes that OpenSSL has not sent yet come
    /// before them.
    func sealed(_ bytes: [UInt8]) -> [UInt8] {
        if !bytes.isEmpty {
            #expect(unsafe SSL_write(ssl, bytes, Int32(bytes.count)) == bytes.count)
        }
        return take()
    }

    /// Changes the malicious peer's key; if `asking`, requests a change of the victim's key too.
    func changeKey(asking: Bool = false) {
        let kind = asking ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED
        #expect(unsafe SSL_key_update(ssl, kind) == 1)
        unsafe SSL_do_handshake(ssl)
        deliver(take())
    }

    /// The TLS records of a new session ticket, each with at most 512 bytes of content. The ticket
    /// is made so long that it needs several records.
    func ticketRecords() -> [[UInt8]] {
        let filling = [UInt8](repeating: 0, count: 600)
        #expect(
            unsafe SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), filling, filling.count)
                == 1)
        #expect(unsafe SSL_ctrl(ssl, SSL_CTRL_SET_MAX_SEND_FRAGMENT, 512, nil) == 1)
        #expect(unsafe SSL_new_session_ticket(ssl) == 1)
        #expect(unsafe SSL_do_handshake(ssl) == 1)
        var bytes = take()[...]
        var records: [[UInt8]] = []
        while bytes.count >= 5 {
            let header = Array(bytes.prefix(5))
            let record = bytes.prefix(5 + Int(header[3]) << 8 + Int(header[4]))
            records.append(Array(record))
            bytes = bytes.dropFirst(record.count)
        }
        return records
    }

    /// Sends close_notify, which says that the malicious peer will send no more.
    func shutDown() {
        unsafe SSL_shutdown(ssl)
        deliver(take())
    }

    /// Lets the victim send, and reads what it sends.
    func pump() {
        collect()
        advance()
    }

    /// Hands bytes to the victim unchanged, and collects what the victim sends.
    func deliver(_ bytes: [UInt8]) {
        guard victim.outcome == nil else { return }
        victim.feed(bytes, now: now)
        collect()
    }

    /// Whether the victim reports that both sides are proven.
    var isVictimReady: Bool { victim.isReady }
    /// The identity that the victim reports for the malicious peer.
    var reportedIdentity: PeerIdentity? { victim.peer }
    /// How many bytes have arrived at the victim and are not processed.
    var unprocessedBytes: Int { victim.unprocessedBytes }
    /// Whether the victim's channel is over.
    var isVictimOver: Bool { victim.outcome != nil }
    /// The phase that the victim has reached.
    var victimPhase: ChannelPhase { victim.phase }

    /// Tells the victim that its link has ended, and returns the error with which the
    /// victim has failed; `nil` if it has not.
    func endLinkReturningVictimFailure() -> ChannelError? {
        victim.linkEnded(nil, now: now)
        guard case .failed(let error) = victim.outcome else { return nil }
        return error
    }

    private func send(_ bytes: [UInt8]) {
        let bytes = tamper(bytes)
        defer { flights.append(bytes) }
        switch role {
        case .dialer where flights.isEmpty:
            transcript.hello = (try? Hello(offers: [CertificateFixture.tls]).encoded) ?? []
            transcript.early = bytes
            deliver(transcript.hello + MaliciousNoisePeer.framed(bytes))
        case .acceptor where flights.isEmpty:
            transcript.answer = Answer(.accept).encoded
            deliver(transcript.answer + bytes)
        default: deliver(bytes)
        }
    }

    private func advance() {
        ERR_clear_error()
        guard alert == nil else { return }
        if !isHandshakeDone { isHandshakeDone = unsafe SSL_do_handshake(ssl) == 1 }
        while isHandshakeDone {
            var bytes = [UInt8](repeating: 0, count: 16_384)
            let count = unsafe SSL_read(ssl, &bytes, Int32(bytes.count))
            guard count > 0 else { break }
            read(bytes.prefix(Int(count)))
        }
        let code = ERR_peek_error()
        if blesec_error_is_alert(code) == 1 {
            alert = blesec_error_reason(code) - SSL_AD_REASON_OFFSET
        }
    }

    private func read(_ bytes: ArraySlice<UInt8>) {
        plaintext += bytes
        while plaintext.count >= 3 {
            let length = Int(plaintext[0]) << 8 | Int(plaintext[1])
            guard plaintext.count >= 2 + length else { return }
            opened.append(
                (RecordType(rawValue: plaintext[2]), Array(plaintext[3..<2 + length])))
            plaintext.removeFirst(2 + length)
        }
    }

    private func take() -> [UInt8] {
        let count = unsafe Int(BIO_ctrl_pending(output))
        return unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, used in
            used = unsafe max(0, Int(BIO_read(output, buffer.baseAddress, Int32(count))))
        }
    }

    private func collect() {
        while true {
            let bytes = victim.transmit(now: now)
            guard !bytes.isEmpty else { return }
            incoming += bytes
            readNegotiation()
            guard hasNegotiated else { continue }
            while incoming.count >= 5 {
                let length = 5 + Int(incoming[3]) << 8 + Int(incoming[4])
                guard incoming.count >= length else { break }
                let record = Array(incoming.prefix(length))
                records.append(record)
                incoming.removeFirst(length)
                unsafe BIO_write(input, record, Int32(record.count))
            }
        }
    }

    private func readNegotiation() {
        guard !hasNegotiated else { return }
        switch role {
        case .dialer:
            guard let answer = try? Answer(prefixOf: incoming.span, offerCount: 1) else { return }
            transcript.answer = answer.encoded
            incoming.removeFirst(answer.encoded.count)
        case .acceptor:
            guard let hello = try? Hello(prefixOf: incoming.span) else { return }
            incoming.removeFirst(hello.encoded.count)
            let length = Int(incoming[0]) << 8 | Int(incoming[1])
            transcript.hello = hello.encoded
            transcript.early = Array(incoming[2..<2 + length])
            // OpenSSL gets only TLS records, so the two bytes with the early message's length are
            // removed.
            incoming.removeFirst(2)
        }
        hasNegotiated = true
    }
}
