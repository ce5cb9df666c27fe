internal import BLESecChannelCore
internal import CBLESecOpenSSL

/// An OpenSSL connection, and the state that its callbacks need.
@safe final class TLSSession {
    /// The result of a step of the handshake: it needs more bytes of the peer, a dialer's handshake
    /// waits for the trust policy, or it is complete.
    enum Step { case wantsMore, suspended, done }

    let ssl: OpaquePointer
    let pipe = TLSPipe()
    let context: TLSContext
    /// This side's role.
    let role: ChannelRole
    /// Whether both sides must agree on blesec/1 in the handshake.
    let isNegotiated: Bool

    /// The identity in the peer's certificate; nil until ``PeerCertificate`` has accepted the
    /// certificate or, if a session is resumed, until the handshake is complete. The trust policy
    /// decides after that.
    private(set) var identity: PeerIdentity?
    /// The peer's identity in the session that is being resumed.
    private var resumedIdentity: PeerIdentity?
    /// At an acceptor, the session that the dialer resumes, kept until OpenSSL has a reference.
    private var resumedSession: ResumableSession?
    /// Why this side has refused the peer; nil if it has not. More precise than OpenSSL's error.
    private(set) var refusal: ChannelError?
    /// The policy's decision about the peer; a dialer's handshake is suspended until it is set.
    var isAdmitted: Bool?
    /// Whether the next record must use a new key. OpenSSL is asked for the new key only when that
    /// record is written. If OpenSSL were asked earlier, it could write `KeyUpdate` at any time,
    /// even during a read.
    var changesKey = false
    /// Whether the peer has announced that it sends no more.
    private(set) var isPeerDone = false
    /// TLS records that have to be sent before this side's next record. After the peer has requested
    /// a change of this side's key, OpenSSL writes the `KeyUpdate` with this side's next record. But
    /// if another handshake message of the peer arrives first, OpenSSL writes the `KeyUpdate` while
    /// it reads that message.
    private(set) var owedRecords: [UInt8] = []
    /// The number of records received since the last one with data.
    private var silentRecords = 0
    private var hasReceivedData = false
    /// The number of records of the peer during the handshake.
    private var handshakeRecords = 0
    /// The lengths that the peer's messages announce in records that are not encrypted.
    private var announcedLengths = AnnouncedLengths()
    /// At a dialer, whether the acceptor has requested a certificate, and whether one was sent. A
    /// resumed session needs neither.
    private var hasCertificateRequest = false
    private var hasSentCertificate = false

    /// The most records that a peer's handshake may have. Records can be short: if a dialer asks
    /// for 512 bytes (RFC 6066 §4), the longest chain of certificates takes nine records.
    private static let mostHandshakeRecords = 64
    /// The most consecutive records without data that a peer may send; a `KeyUpdate` is one.
    private static let mostSilentRecords = 32
    /// The greatest length of ``owedRecords`` in bytes: about 75 changes of key.
    private static let mostOwedBytes = 2 << 10
    /// The record with the fatal alert `illegal_parameter` (RFC 8446 §6), not encrypted.
    private static let illegalParameterAlert: [UInt8] = [
        UInt8(SSL3_RT_ALERT), 3, 3, 0, 2, UInt8(SSL3_AL_FATAL), UInt8(SSL_AD_ILLEGAL_PARAMETER),
    ]
    /// The value of ``longestPlaintext`` if the dialer asks for no other.
    static let defaultLongestPlaintext = 16 << 10

    init(_ context: TLSContext, role: ChannelRole, isNegotiated: Bool) throws(ChannelError) {
        OpenSSLError.clear()
        guard let ssl = unsafe SSL_new(context.pointer) else { throw .tlsContext() }
        guard let bio = unsafe pipe.makeBIO() else {
            unsafe SSL_free(ssl)
            throw .tlsContext()
        }
        // The BIO serves both directions, and SSL_set_bio takes over one reference to it.
        unsafe SSL_set_bio(ssl, bio, bio)
        unsafe self.ssl = ssl
        self.context = context
        self.role = role
        self.isNegotiated = isNegotiated
        unsafe SSL_set_ex_data(ssl, Self.exDataIndex, Unmanaged.passUnretained(self).toOpaque())
        switch role {
        case .acceptor:
            unsafe SSL_set_accept_state(ssl)
            context.sessions?.removeOld(now: context.clock())
        case .dialer:
            unsafe SSL_set_connect_state(ssl)
            try resumeLast()
            guard isNegotiated else { return }
            let name = TLSContext.applicationProtocol
            let list = [UInt8(name.count)] + name
            guard unsafe SSL_set_alpn_protos(ssl, list, UInt32(list.count)) == 0 else {
                throw .tlsContext()
            }
        }
    }

    deinit {
        // Without these flags OpenSSL assumes that the session was truncated, and never resumes it.
        // In negotiated mode, the records of blesec/1 detect truncation themselves.
        unsafe SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
        unsafe SSL_free(ssl)
    }

    // MARK: - Handshake

    /// Continues the handshake as far as possible.
    func advance() throws(ChannelError) -> Step {
        OpenSSLError.clear()
        let result = unsafe SSL_do_handshake(ssl)
        if result == 1 {
            // The callback limits only the messages of a peer that is not proven yet.
            unsafe SSL_set_msg_callback(ssl, nil)
            if isNegotiated, !hasAgreed { throw .otherApplication }
            // OpenSSL does not verify the peer's certificate when it resumes a session.
            if unsafe SSL_session_reused(ssl) == 1 {
                identity = resumedIdentity
            } else if role == .dialer, !hasSentCertificate {
                _ = pipe.takeFlight()
                throw .noAcceptedSignature
            }
            return .done
        }
        switch unsafe SSL_get_error(ssl, result) {
        case SSL_ERROR_WANT_READ: return .wantsMore
        case SSL_ERROR_WANT_RETRY_VERIFY: return .suspended
        default: throw refusal ?? ChannelError(tls: OpenSSLError.takeTLS())
        }
    }

    /// Offers to resume the session of the last dial, if its peer is still accepted.
    private func resumeLast() throws(ChannelError) {
        guard let session = context.sessions?.takeDialed(now: context.clock()),
            let peer = session.evaluateTrust(context, peerRole: .acceptor)
        else { return }
        guard unsafe SSL_set_session(ssl, session.pointer) == 1 else { throw .tlsContext() }
        resumedIdentity = peer
    }

    /// Sends a session ticket to an admitted dialer, which can resume the session later.
    func giveTicket() throws(ChannelError) {
        guard role == .acceptor, context.sessions != nil else { return }
        OpenSSLError.clear()
        guard unsafe SSL_new_session_ticket(ssl) == 1, unsafe SSL_do_handshake(ssl) == 1 else {
            throw ChannelError(tls: OpenSSLError.takeTLS())
        }
    }

    /// Reads one record of the handshake and continues.
    func advance(with record: UnsafePointer<UInt8>, count: Int) throws(ChannelError) -> Step {
        handshakeRecords += 1
        guard handshakeRecords <= Self.mostHandshakeRecords else {
            throw ChannelError(
                .limitExceeded,
                "the peer's TLS handshake has more than "
                    + "\(Self.mostHandshakeRecords) records")
        }
        let fragment = unsafe UnsafeBufferPointer(start: record, count: count)
            .dropFirst(TLSRecords.headerLength)
        if unsafe record[0] == UInt8(SSL3_RT_HANDSHAKE),
            unsafe !announcedLengths.areAccepted(fragment)
        {
            // OpenSSL would at once allocate as many bytes as the message announces.
            pipe.appendToFlight(Self.illegalParameterAlert)
            throw .tooLongMessage
        }
        return try unsafe pipe.reading(record, count: count) { () throws(ChannelError) in
            let step = try advance()
            guard pipe.inputCount == 0 else { throw .malformedRecord }
            return step
        }
    }

    /// Whether both sides have agreed on blesec/1 (RFC 7301). If the peer sends no application
    /// protocol, OpenSSL does not check the agreement.
    private var hasAgreed: Bool {
        var name: UnsafePointer<UInt8>?
        var count: UInt32 = 0
        unsafe SSL_get0_alpn_selected(ssl, &name, &count)
        return unsafe UnsafeBufferPointer(start: name, count: Int(count)).elementsEqual(
            TLSContext.applicationProtocol)
    }

    // MARK: - Records

    /// Opens the TLS record at the offsets `record` from `base`, and writes its content from the
    /// offset `target` on. `target` must not be greater than the record's first offset. Returns the
    /// content's length.
    func read(
        _ base: UnsafeMutablePointer<UInt8>, record: Range<Int>, to target: Int
    ) throws(ChannelError) -> Int {
        let total = try unsafe pipe.reading(base + record.lowerBound, count: record.count) {
            () throws(ChannelError) in
            var total = 0
            reading: repeat {
                var count = 0
                // Without this, SSL_get_error would report an older error of the queue.
                OpenSSLError.clear()
                let result = unsafe SSL_read_ex(
                    ssl, base + target + total, record.upperBound - target - total, &count)
                total += count
                guard result != 1 else { continue }
                switch unsafe SSL_get_error(ssl, result) {
                case SSL_ERROR_WANT_READ: break reading
                case SSL_ERROR_ZERO_RETURN where pipe.inputCount == 0:
                    isPeerDone = true
                    break reading
                default:
                    throw ChannelError(
                        tls: OpenSSLError.takeTLS(), peerAlertEndsSession: hasReceivedData)
                }
            } while unsafe pipe.inputCount > 0 || SSL_has_pending(ssl) == 1
            guard pipe.inputCount == 0 else { throw .malformedRecord }
            return total
        }
        silentRecords = total > 0 ? 0 : silentRecords + 1
        if total > 0 { hasReceivedData = true }
        guard silentRecords <= Self.mostSilentRecords else {
            throw ChannelError(
                .limitExceeded, "the peer sends one TLS record after another without data")
        }
        if pipe.hasFlight {
            let flight = pipe.takeFlight()
            // After this side's close_notify, nothing more is sent.
            if unsafe SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN == 0 { owedRecords += flight }
        }
        guard owedRecords.count <= Self.mostOwedBytes else {
            throw ChannelError(
                .limitExceeded,
                "the peer requests one change of this side's key after another, and this side "
                    + "could send no record meanwhile")
        }
        return total
    }

    /// Whether a handshake message of the peer is incomplete. Such a message, like a session
    /// ticket, may be spread over several TLS records. OpenSSL writes nothing until it is complete.
    var isInsideHandshakeMessage: Bool { unsafe SSL_in_init(ssl) != 0 }

    /// The length in bytes of the longest plaintext that OpenSSL writes into one record, known after
    /// the handshake. A dialer may ask for short records with the extension max_fragment_length (RFC
    /// 6066 §4), in which 1 to 4 stand for 512 to 4,096 bytes.
    var longestPlaintext: Int {
        let code = unsafe SSL_SESSION_get_max_fragment_length(SSL_get_session(ssl))
        return (1...4).contains(code) ? 256 << Int(code) : Self.defaultLongestPlaintext
    }

    /// Whether a change of key must precede the next record, on this side's or the peer's request.
    var owesKeyUpdate: Bool {
        unsafe changesKey || SSL_get_key_update_type(ssl) != SSL_KEY_UPDATE_NONE
    }

    /// Seals the last `count` bytes of the `room` bytes at `start`, and writes the TLS records from
    /// `start` on. Returns the number of bytes written.
    ///
    /// The error queue is not cleared, since older errors do not change a write's result. Clearing
    /// it would take as long as all other work for a short record.
    func write(
        count: Int, to start: UnsafeMutablePointer<UInt8>, room: Int
    ) throws(ChannelError) -> Int {
        try unsafe writing(to: start, room: room) { () throws(ChannelError) in
            if changesKey {
                changesKey = false
                guard unsafe SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 else {
                    throw .tlsWrite()
                }
            }
            var written = 0
            guard unsafe SSL_write_ex(ssl, start + room - count, count, &written) == 1,
                written == count
            else { throw .tlsWrite() }
        }
    }

    /// Writes `close_notify`: this side sends no more (RFC 8446 §6.1).
    func writeCloseNotify(
        to start: UnsafeMutablePointer<UInt8>, room: Int
    ) throws(ChannelError) -> Int {
        try unsafe writing(to: start, room: room) { () throws(ChannelError) in
            guard unsafe SSL_shutdown(ssl) >= 0 else { throw .tlsWrite() }
        }
    }

    /// Writes the ``owedRecords`` to `start`, and lets OpenSSL write to the rest of the `room` bytes
    /// while `body` runs. Returns the number of bytes written.
    private func writing(
        to start: UnsafeMutablePointer<UInt8>, room: Int, _ body: () throws(ChannelError) -> Void
    ) throws(ChannelError) -> Int {
        let count = owedRecords.count
        guard count > 0 else { return try unsafe pipe.writing(to: start, room: room, body) }
        for index in 0..<count { unsafe start[index] = owedRecords[index] }
        owedRecords = []
        return try unsafe count + pipe.writing(to: start + count, room: room - count, body)
    }

    // MARK: - OpenSSL's callbacks

    /// The index of the place where OpenSSL keeps a connection's data for the application: here the
    /// connection's `TLSSession`.
    private static let exDataIndex: Int32 = 0

    private static func session(of ssl: OpaquePointer?) -> TLSSession? {
        guard let ssl = unsafe ssl, let data = unsafe SSL_get_ex_data(ssl, exDataIndex) else {
            return nil
        }
        return unsafe Unmanaged<TLSSession>.fromOpaque(data).takeUnretainedValue()
    }

    /// Installs the callbacks with which OpenSSL calls the `TLSSession` of a connection.
    static func installCallbacks(on context: TLSContext) {
        let pointer = unsafe context.pointer
        unsafe SSL_CTX_set_verify(pointer, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
        unsafe SSL_CTX_set_cert_verify_callback(
            pointer,
            { verification, _ in
                let ssl = unsafe X509_STORE_CTX_get_ex_data(
                    verification, SSL_get_ex_data_X509_STORE_CTX_idx())
                guard let verification = unsafe verification,
                    let session = unsafe TLSSession.session(of: ssl.map { OpaquePointer($0) })
                else { return 0 }
                let isAccepted = unsafe session.evaluateTrust(verification)
                // Every fault gives the same alert.
                unsafe X509_STORE_CTX_set_error(
                    verification, isAccepted ? X509_V_OK : X509_V_ERR_APPLICATION_VERIFICATION)
                return isAccepted ? 1 : 0
            }, nil)
        // OpenSSL calls this for each message of the handshake. It parses a received message after
        // the call, and then parses the same bytes.
        unsafe SSL_CTX_set_msg_callback(pointer) { isSent, _, kind, bytes, count, ssl, _ in
            guard kind == SSL3_RT_HANDSHAKE, let bytes = unsafe bytes,
                let session = unsafe TLSSession.session(of: ssl)
            else { return }
            let message = unsafe UnsafeMutableRawBufferPointer(
                start: UnsafeMutableRawPointer(mutating: bytes), count: count)
            if isSent == 0 {
                unsafe session.limitDecoding(of: message)
            } else if unsafe message.first == UInt8(SSL3_MT_CERTIFICATE) {
                let certificates = unsafe CertificateMessage.certificateCount(in: Array(message))
                session.hasSentCertificate = certificates ?? 0 > 0
            }
        }
        unsafe SSL_CTX_set_client_hello_cb(
            pointer,
            { ssl, alert, _ in
                guard let session = unsafe TLSSession.session(of: ssl) else {
                    return SSL_CLIENT_HELLO_ERROR
                }
                guard let refusal = session.refusalOfHello() else {
                    return SSL_CLIENT_HELLO_SUCCESS
                }
                unsafe alert?.pointee = refusal.alert
                session.refusal = refusal.error
                return SSL_CLIENT_HELLO_ERROR
            }, nil)
        unsafe SSL_CTX_set_alpn_select_cb(
            pointer,
            { ssl, chosen, length, offered, count, _ in
                guard let session = unsafe TLSSession.session(of: ssl), let chosen = unsafe chosen,
                    let length = unsafe length
                else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                return unsafe session.choose(
                    from: UnsafeBufferPointer(start: offered, count: Int(count)), &chosen.pointee,
                    &length.pointee)
            }, nil)
    }

    /// Limits the work and the memory that a handshake message of a peer that is not proven yet
    /// causes. Overwrites a message that is too long, or has too many certificates, so that OpenSSL
    /// refuses the message. Changes the algorithm of each key whose decoding could take long:
    /// OpenSSL does not decode a key of an unknown algorithm, and ``PeerCertificate`` refuses its
    /// certificate.
    private func limitDecoding(of message: UnsafeMutableRawBufferPointer) {
        let bytes = unsafe Array(message)
        if bytes.first == UInt8(SSL3_MT_CERTIFICATE_REQUEST) { hasCertificateRequest = true }
        let headerLength = CertificateMessage.headerLength
        if let fault = fault(of: bytes) {
            refusal = fault
            // Every message begins its body with a version, a length or an algorithm, and none of
            // these can be all ones.
            for index in headerLength..<max(headerLength, bytes.count) {
                unsafe message[index] = 0xFF
            }
        } else if bytes.first == UInt8(SSL3_MT_CERTIFICATE) {
            for index in CanonicalKey.offsetsOfRefusedECKeys(in: bytes) {
                unsafe message[index] = 0x7F
            }
        }
    }

    /// Why OpenSSL may not parse this message of the handshake; nil if it may.
    private func fault(of message: [UInt8]) -> ChannelError? {
        guard message.count - CertificateMessage.headerLength <= TLSContext.longestMessage else {
            return .tooLongMessage
        }
        guard message.first == UInt8(SSL3_MT_CERTIFICATE) else { return nil }
        guard let count = CertificateMessage.certificateCount(in: message) else {
            return ChannelError(.protocolViolation, "the peer broke TLS")
        }
        return count <= TLSContext.mostCertificates ? nil : .tooManyCertificates
    }

    /// Evaluates trust in the peer's certificate. If the certificate is good, a dialer's handshake
    /// is then suspended, before this side's own certificate is sent. When the policy has decided,
    /// the handshake continues, and OpenSSL calls this function again. Returns false if the peer
    /// is refused; ``refusal`` then has the reason.
    private func evaluateTrust(_ verification: OpaquePointer) -> Bool {
        if identity != nil {
            if isAdmitted == true { return true }
            refusal = ChannelError(.untrusted, "the trust policy refuses the peer")
            return false
        }
        do throws(ChannelError) {
            if isNegotiated, role == .dialer, !hasAgreed { throw .otherApplication }
            if role == .dialer, !hasCertificateRequest { throw .noCertificateRequest }
            identity = try unsafe PeerCertificate(context: context, role: role.peer)
                .evaluateTrust(verification)
        } catch {
            refusal = error
            return false
        }
        if role == .dialer { unsafe blesec_ssl_retry_verify(ssl) }
        return true
    }

    /// The greatest length in bytes of the lists in a ClientHello that cost OpenSSL much work or
    /// memory for each entry. Groups are searched for each key share.
    private static let longestHelloLists = [
        (TLSEXT_TYPE_supported_groups, 128), (TLSEXT_TYPE_certificate_authorities, 256),
        (TLSEXT_TYPE_status_request, 256),
    ]

    /// Why a dialer's ClientHello is refused, and the alert; nil if the ClientHello is accepted. In
    /// negotiated mode, the ClientHello must name application protocols, among which this side
    /// chooses later.
    private func refusalOfHello() -> (error: ChannelError, alert: Int32)? {
        func length(_ type: Int32) -> Int? {
            var list: UnsafePointer<UInt8>?
            var count = 0
            let found = unsafe SSL_client_hello_get0_ext(ssl, UInt32(type), &list, &count)
            return found == 1 ? count : nil
        }
        for (type, longest) in Self.longestHelloLists where length(type) ?? 0 > longest {
            return (.tooLongMessage, SSL_AD_ILLEGAL_PARAMETER)
        }
        if isNegotiated, length(TLSEXT_TYPE_application_layer_protocol_negotiation) == nil {
            return (.otherApplication, SSL_AD_NO_APPLICATION_PROTOCOL)
        }
        return nil
    }

    /// Chooses among a dialer's application protocols: blesec/1 in negotiated mode. In direct mode
    /// none is chosen, and a dialer that names blesec/1 is refused.
    private func choose(
        from offered: UnsafeBufferPointer<UInt8>, _ chosen: inout UnsafePointer<UInt8>?,
        _ length: inout UInt8
    ) -> Int32 {
        var rest = unsafe offered[...]
        while let count = unsafe rest.first {
            let name = unsafe rest.dropFirst().prefix(Int(count))
            if unsafe name.elementsEqual(TLSContext.applicationProtocol) {
                guard isNegotiated, let start = offered.baseAddress else { break }
                unsafe chosen = start + name.startIndex
                length = count
                return SSL_TLSEXT_ERR_OK
            }
            unsafe rest = rest.dropFirst(1 + Int(count))
        }
        // Here, `rest` is empty if and only if no name is blesec/1.
        if unsafe !isNegotiated && rest.isEmpty { return SSL_TLSEXT_ERR_NOACK }
        refusal = .otherApplication
        return SSL_TLSEXT_ERR_ALERT_FATAL
    }

    /// Installs the callbacks with which OpenSSL stores sessions and finds them again.
    static func installResumption(on context: TLSContext) {
        let pointer = unsafe context.pointer
        unsafe blesec_ssl_context_resume(pointer)
        unsafe SSL_CTX_sess_set_new_cb(pointer) { ssl, new in
            guard let session = unsafe TLSSession.session(of: ssl), let new = unsafe new else {
                return 0
            }
            var ticketLength = 0
            unsafe SSL_SESSION_get0_ticket(new, nil, &ticketLength)
            guard ticketLength <= TLSSessionStore.longestTicket else { return 0 }
            let kept = unsafe ResumableSession(owning: new, of: ssl)
            let context = session.context
            context.sessions?.keep(kept, role: session.role, now: context.clock())
            return 1
        }
        unsafe SSL_CTX_sess_set_get_cb(pointer) { ssl, id, count, addsReference in
            // 1 makes OpenSSL add a reference of its own to the session.
            unsafe addsReference?.pointee = 1
            guard let session = unsafe TLSSession.session(of: ssl) else { return nil }
            return unsafe session.findSession(
                Array(UnsafeBufferPointer(start: id, count: max(0, Int(count)))))
        }
    }

    /// The session that a dialer wants to resume, if this dialer is still accepted.
    private func findSession(_ id: [UInt8]) -> OpaquePointer? {
        guard let session = context.sessions?.takeAccepted(id, now: context.clock()),
            let peer = session.evaluateTrust(context, peerRole: .dialer)
        else { return nil }
        resumedIdentity = peer
        resumedSession = session
        return unsafe session.pointer
    }
}
