internal import BLESecChannelCore
internal import BLESecLocking
internal import CBLESecOpenSSL

/// The resumable sessions of one `TLSContext`; each session is resumed at most once.
///
/// A session contains the certificates with which the peer has proven its identity in a full
/// handshake. Before a session is used, trust in the peer is evaluated again.
final class TLSSessionStore: Sendable {
    /// The most sessions that an acceptor keeps; the oldest is dropped first.
    static let capacity = 256
    /// How long a session can be resumed, in seconds. Each call of this type removes older sessions,
    /// and sessions from the future, after the clock was set back.
    static let lifetime: Int64 = 7_200
    /// The longest ticket of a session that is kept, in bytes. A ClientHello, which contains the
    /// ticket, may have ``TLSContext/longestMessage`` bytes. Tickets of this package have 32.
    static let longestTicket = 1_024

    private struct Entry: Sendable {
        let session: ResumableSession
        /// When the session was stored, in seconds since 1970.
        let time: Int64

        func isUsable(_ now: Int64) -> Bool {
            let age = now.subtractingReportingOverflow(time)
            return !age.overflow && (0...TLSSessionStore.lifetime).contains(age.partialValue)
        }
    }

    private struct Content: Sendable {
        var accepted: [(id: [UInt8], entry: Entry)] = []
        var dialed: Entry?

        mutating func removeOld(_ now: Int64) {
            accepted.removeAll { !$0.entry.isUsable(now) }
            if dialed?.isUsable(now) == false { dialed = nil }
        }
    }

    private let content = Locked(Content())

    /// Removes the sessions that can no longer be resumed.
    func removeOld(now: Int64) { content.withLock { $0.removeOld(now) } }

    /// Stores a session. An acceptor finds it by the session's identifier. A dialer keeps only its
    /// newest session, until it dials again.
    func keep(_ session: ResumableSession, role: ChannelRole, now: Int64) {
        let entry = Entry(session: session, time: now)
        content.withLock { content in
            content.removeOld(now)
            switch role {
            case .dialer: content.dialed = entry
            case .acceptor:
                if content.accepted.count >= Self.capacity { content.accepted.removeFirst() }
                content.accepted.append((session.id, entry))
            }
        }
    }

    /// Removes and returns the session that the last dial has stored.
    func takeDialed(now: Int64) -> ResumableSession? {
        content.withLock { content in
            content.removeOld(now)
            return content.dialed.take()?.session
        }
    }

    /// Removes and returns the session that a dialer wants to resume.
    func takeAccepted(_ id: [UInt8], now: Int64) -> ResumableSession? {
        content.withLock { content in
            content.removeOld(now)
            let index = content.accepted.firstIndex { $0.id == id }
            return index.map { content.accepted.remove(at: $0).entry.session }
        }
    }
}

/// An OpenSSL session, and the certificates that the peer has sent in it.
@safe final class ResumableSession: @unchecked Sendable {
    // Unchecked: OpenSSL counts references atomically, and nothing changes either object.
    let pointer: OpaquePointer
    private let chain: OpaquePointer?

    /// Takes ownership of a reference to a session that `ssl` has just made.
    init(owning pointer: OpaquePointer, of ssl: OpaquePointer?) {
        unsafe self.pointer = pointer
        let peerChain = unsafe SSL_get_peer_cert_chain(ssl)
        unsafe chain = peerChain == nil ? nil : X509_chain_up_ref(peerChain)
    }

    deinit {
        unsafe SSL_SESSION_free(pointer)
        unsafe blesec_certificates_free(chain)
    }

    /// The identifier under which an acceptor finds the session.
    var id: [UInt8] {
        var count: UInt32 = 0
        let bytes = unsafe SSL_SESSION_get_id(pointer, &count)
        return unsafe Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
    }

    /// Evaluates trust in the peer as in a full handshake, at the present time. Returns `nil` if
    /// the peer is no longer accepted, or if OpenSSL fails. A full handshake then follows, and
    /// reports the reason.
    func evaluateTrust(_ context: TLSContext, peerRole: ChannelRole) -> PeerIdentity? {
        guard let leaf = unsafe SSL_SESSION_get0_peer(pointer),
            let verification = unsafe X509_STORE_CTX_new()
        else { return nil }
        defer { unsafe X509_STORE_CTX_free(verification) }
        let authorities = unsafe SSL_CTX_get_cert_store(context.pointer)
        guard unsafe X509_STORE_CTX_init(verification, authorities, leaf, chain) == 1,
            unsafe X509_STORE_CTX_set_default(
                verification, peerRole == .dialer ? "ssl_client" : "ssl_server") == 1
        else { return nil }
        return try? unsafe PeerCertificate(context: context, role: peerRole)
            .evaluateTrust(verification)
    }
}
