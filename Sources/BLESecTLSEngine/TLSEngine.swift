package import BLESecChannelCore
package import BLESecPrimitives
internal import CBLESecOpenSSL

/// A channel engine for TLS 1.3 (RFC 8446) on OpenSSL, with certificates from both sides.
/// ``SecureEngine`` describes its members.
package struct TLSEngine: ~Copyable, SecureEngine {
    /// The overhead of a TLS record in bytes: header, content type and tag.
    package static let overhead = TLSRecords.headerLength + 1 + 16
    /// The length in bytes of a record with `KeyUpdate`.
    private static let keyUpdateLength = overhead + 5
    /// The length in bytes of a record with the alert `close_notify`.
    private static let closeNotifyLength = overhead + 2

    /// Nil after a failure.
    private var session: TLSSession?
    /// Why the handshake has failed, if an alert has to be sent to the peer.
    private var failure: ChannelError?
    /// The last bytes that a failed handshake sends, such as an alert.
    private var finalBytes: [UInt8] = []
    /// Whether this is an acceptor that has not answered the first ClientHello yet.
    private var isAwaitingHello: Bool
    /// Whether a dialer's handshake waits for the trust policy's decision.
    private var isSuspended = false
    /// Whether OpenSSL has completed the handshake.
    private var isDone = false
    /// Whether ``admit()`` was called.
    private var isAdmitted = false
    /// Whether the peer was refused, and so gets no session ticket. The channel calls `admit()` for
    /// a refused peer too, since no record, not even `reject`, can be sealed before that call.
    private var isRefused = false
    private var records = TLSRecords()
    /// The length in bytes of the longest plaintext that this side sends in one TLS record.
    private var longestPlaintext = TLSSession.defaultLongestPlaintext
    /// Whether the channel is in negotiated mode, in which TLS carries the records of blesec/1. In
    /// direct mode, TLS carries the application's bytes alone.
    private let isNegotiated: Bool

    /// Begins a handshake.
    ///
    /// - Throws: `configuration` when the certificate may not be used in this role; `internal` when
    ///   OpenSSL fails.
    package init(
        _ context: TLSContext, role: ChannelRole, isNegotiated: Bool
    ) throws(ChannelError) {
        try context.check(role)
        let session = try TLSSession(context, role: role, isNegotiated: isNegotiated)
        // This makes a dialer's first flight, which ``nextHandshake()`` returns. The step is always
        // `wantsMore`, since nothing was received yet.
        if role == .dialer { _ = try session.advance() }
        self.session = session
        isAwaitingHello = role == .acceptor
        self.isNegotiated = isNegotiated
    }

    package var framesHandshake: Bool { false }
    /// True: TLS announces a new key with `KeyUpdate`.
    package var announcesRekey: Bool { true }
    /// True: the alert `close_notify` proves that its sender sends no more.
    package var provesEnd: Bool { true }
    /// The length in bytes of the payload that fills one TLS record.
    package var bulkPayload: Int { longestPlaintext - TLSRecords.lengthSize - 1 }

    package var phase: EnginePhase {
        if let failure { return .failing(failure) }
        guard let session else { return .failed }
        guard isSuspended || isDone, let identity = session.identity else { return .handshaking }
        guard isAdmitted else { return .awaitingTrustDecision(ClaimedIdentity(identity)) }
        return established == nil ? .handshaking : .established(identity)
    }

    /// The session, once records can be sealed and opened.
    private var established: TLSSession? {
        guard isDone, isAdmitted, let session, !session.pipe.hasFlight else { return nil }
        return session
    }

    /// The channel binding of RFC 9266.
    package var handshakeHash: [UInt8] {
        guard isDone, let session else { return [] }
        var hash = [UInt8](repeating: 0, count: 32)
        let label = "EXPORTER-Channel-Binding"
        guard
            unsafe SSL_export_keying_material(
                session.ssl, &hash, hash.count, label, label.utf8.count, nil, 0, 0) == 1
        else { return [] }
        return hash
    }

    // MARK: - Handshake

    @discardableResult
    package mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int {
        guard failure == nil else { return bytes.count }
        guard session != nil, !isSuspended, !isDone else { throw .outOfPlace }
        var used = 0
        while failure == nil, !isSuspended, !isDone {
            let length = try TLSRecords.length(
                bytes.extracting(droppingFirst: used), isHello: isAwaitingHello)
            guard let length, bytes.count - used >= length else { break }
            try unsafe bytes.withUnsafeBufferPointer { buffer throws(ChannelError) in
                try unsafe advance(buffer.baseAddress.map { unsafe $0 + used }, count: length)
            }
            used += length
            // A ClientHello may be spread over several records. OpenSSL answers after the last of
            // these records.
            if let session, session.pipe.hasFlight { isAwaitingHello = false }
        }
        return failure == nil ? used : bytes.count
    }

    package mutating func nextHandshake() throws(ChannelError) -> [UInt8]? {
        if failure != nil {
            defer { finalBytes = [] }
            return finalBytes.isEmpty ? nil : finalBytes
        }
        guard let session else { throw .outOfPlace }
        return session.pipe.hasFlight ? session.pipe.takeFlight() : nil
    }

    package mutating func admit() throws(ChannelError) {
        guard case .awaitingTrustDecision = phase else { throw .outOfPlace }
        isAdmitted = true
        // A handshake that is not suspended is complete here.
        guard isSuspended else {
            if !isRefused { try session?.giveTicket() }
            return
        }
        isSuspended = false
        session?.isAdmitted = true
        try unsafe advance(nil, count: 0)
    }

    package mutating func refuse() -> Refusal {
        guard case .awaitingTrustDecision = phase, isSuspended else {
            isRefused = true
            return isDone && session != nil ? .byRecord : .silent
        }
        isSuspended = false
        session?.isAdmitted = false
        // OpenSSL now refuses the certificate, and makes the alert; `advance` then sets `failure`.
        guard unsafe (try? advance(nil, count: 0)) != nil, failure != nil else { return .silent }
        return .byHandshake
    }

    /// Continues the handshake by one step, with `record` from the peer if it is not nil. After a
    /// failure with an alert for the peer, the phase is `failing` and nothing is thrown; other
    /// failures are thrown.
    private mutating func advance(
        _ record: UnsafePointer<UInt8>?, count: Int
    ) throws(ChannelError) {
        guard let session else { throw .outOfPlace }
        do throws(ChannelError) {
            let step =
                if let record = unsafe record {
                    try unsafe session.advance(with: record, count: count)
                } else {
                    try session.advance()
                }
            switch step {
            case .wantsMore: break
            case .suspended: isSuspended = true
            case .done:
                guard session.identity != nil else { throw ChannelError(CertificateFault.missing) }
                longestPlaintext = session.longestPlaintext
                isDone = true
            }
        } catch {
            let alert = session.pipe.takeFlight()
            self.session = nil
            guard !alert.isEmpty else { throw error }
            finalBytes = alert
            failure = error
        }
    }

    // MARK: - Records

    package func sealedLength(_ count: Int) -> Int {
        let plaintext = count + (isNegotiated ? TLSRecords.lengthSize : 0)
        let owedLength = session?.owedRecords.count ?? 0
        guard plaintext > 0 else { return owedLength + Self.closeNotifyLength }
        let recordCount = (plaintext + longestPlaintext - 1) / longestPlaintext
        return owedLength + nextKeyUpdateLength + recordCount * Self.overhead + plaintext
    }

    /// The length in bytes of the record with `KeyUpdate` that OpenSSL writes before the next
    /// record; 0 if it writes none.
    private var nextKeyUpdateLength: Int {
        session?.owesKeyUpdate == true ? Self.keyUpdateLength : 0
    }

    /// False while a handshake message of the peer, such as a session ticket, has arrived only in
    /// part: no record can be sealed until the rest arrives. True also while records cannot be
    /// sealed for another reason; ``seal(_:_:into:)`` then throws.
    package var canSeal: Bool { established?.isInsideHandshakeMessage != true }

    package mutating func seal(
        _ head: Span<UInt8>, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {
        // Without keys, nothing may be written, since OpenSSL would send plaintext.
        guard let session = established else { throw .outOfPlace }
        let count = head.count + payload.count
        guard count <= TLSRecords.longestRecord else { throw .outOfPlace }
        let room = sealedLength(count)
        precondition(output.freeCapacity >= room, "too little room for a record")
        let isNegotiated = isNegotiated
        try unsafe output.withUnsafeMutableBufferPointer {
            buffer, used throws(ChannelError) in
            guard let base = buffer.baseAddress else { return }
            let start = unsafe base + used
            let plaintext = isNegotiated ? TLSRecords.lengthSize + count : count
            guard plaintext > 0 else {
                used += try unsafe session.writeCloseNotify(to: start, room: room)
                return
            }
            // The plaintext is at the end of the room, and its ciphertext is written from the start
            // on. The room has an overhead for each TLS record, so OpenSSL has read each piece of
            // plaintext before it overwrites the piece.
            var next = unsafe start + room - plaintext
            if isNegotiated {
                unsafe next[0] = UInt8(truncatingIfNeeded: count >> 8)
                unsafe next[1] = UInt8(truncatingIfNeeded: count)
                unsafe next += TLSRecords.lengthSize
            }
            for piece in 0..<2 {
                unsafe (piece == 0 ? head : payload).withUnsafeBufferPointer { source in
                    guard let first = source.baseAddress else { return }
                    unsafe next.update(from: first, count: source.count)
                    unsafe next += source.count
                }
            }
            do throws(ChannelError) {
                used += try unsafe session.write(count: plaintext, to: start, room: room)
            } catch {
                unsafe OPENSSL_cleanse(start, room)
                throw error
            }
        }
    }

    package mutating func open(
        _ buffer: inout MutableSpan<UInt8>
    ) throws(ChannelError) -> OpenedRecord? {
        guard let session = established else { throw .outOfPlace }
        return isNegotiated
            ? try records.next(in: &buffer, session)
            : try records.nextPiece(in: &buffer, session)
    }

    /// Sends `KeyUpdate` (RFC 8446 §4.6.3) before the next record.
    package mutating func rekeySending() throws(ChannelError) {
        guard let session = established else { throw .outOfPlace }
        session.changesKey = true
    }

    /// Always throws: only the peer's `KeyUpdate` changes the receiving key.
    package mutating func rekeyReceiving() throws(ChannelError) { throw .outOfPlace }

    /// Uses the exporter of RFC 8446 §7.5.
    package func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        guard (1...32 * 255).contains(count) else {
            throw ChannelError(.configuration, "an exported key has 1 to 8,160 bytes")
        }
        guard isDone, let session else { throw .outOfPlace }
        let name = "EXPORTER-blesec/1 export"
        let context = sha256(Array(label.utf8)) + sha256(context)
        var key = SecretBytes(count: count)
        let result = unsafe key.withUnsafeMutableBytes { bytes in
            unsafe SSL_export_keying_material(
                session.ssl, bytes.baseAddress, bytes.count, name, name.utf8.count, context,
                context.count, 1)
        }
        guard result == 1 else { throw ChannelError(.internal, "OpenSSL exports no key") }
        return key
    }
}

extension TLSContext {
    /// Throws if this side's certificate may not be used in this role.
    package func check(_ role: ChannelRole) throws(ChannelError) {
        guard identity.allows(role) else {
            throw ChannelError(
                .configuration,
                "this side's certificate is not for a TLS \(role == .dialer ? "client" : "server"): "
                    + "its extended key usage says so")
        }
    }
}
