internal import BLESecChannelCore
internal import BLESecLocking
internal import CBLESecOpenSSL

/// Sessions of one context that may be resumed, each once.
///
/// What is kept of a peer is what it proved in a full handshake; whether that is still accepted is
/// judged anew before it is used.
final class TLSSessionStore: Sendable {
    /// How many sessions an acceptor keeps; the oldest goes first.
    static let capacity = 256

    private struct Content: Sendable {
        var accepted: [(id: [UInt8], session: ResumableSession)] = []
        var dialed: ResumableSession?
    }

    private let content = Locked(Content())

    /// Keeps a session: an acceptor's by the number that the dialer will come with, a dialer's until
    /// its next dial.
    func keep(_ session: ResumableSession, role: ChannelRole) {
        content.withLock { content in
            switch role {
            case .dialer:
                content.dialed = session
            case .acceptor:
                if content.accepted.count >= Self.capacity { content.accepted.removeFirst() }
                content.accepted.append((session.id, session))
            }
        }
    }

    /// Takes out the session of the last dial.
    func takeDialed() -> ResumableSession? { content.withLock { $0.dialed.take() } }

    /// Takes out the session that a dialer wants to resume.
    func takeAccepted(_ id: [UInt8]) -> ResumableSession? {
        content.withLock { content in
            guard let index = content.accepted.firstIndex(where: { $0.id == id }) else {
                return nil
            }
            return content.accepted.remove(at: index).session
        }
    }
}

/// A session of OpenSSL's, and the certificates that the peer has shown in it.
@safe final class ResumableSession: @unchecked Sendable {
    // Unchecked: OpenSSL counts references atomically, and nothing changes what is kept.
    let pointer: OpaquePointer
    private let chain: OpaquePointer?

    /// Takes over a reference to a session that `ssl` has just made.
    init(owning pointer: OpaquePointer, of ssl: OpaquePointer?) {
        unsafe self.pointer = pointer
        let shown = unsafe SSL_get_peer_cert_chain(ssl)
        unsafe chain = shown == nil ? nil : X509_chain_up_ref(shown)
    }

    deinit {
        unsafe SSL_SESSION_free(pointer)
        unsafe blesec_certificates_free(chain)
    }

    /// The number by which an acceptor finds it.
    var id: [UInt8] {
        var count: UInt32 = 0
        let bytes = unsafe SSL_SESSION_get_id(pointer, &count)
        return unsafe Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
    }

    /// Judges the peer as in a full handshake, as of now; `nil` where it is not accepted any more, so
    /// that a full handshake finds out why.
    func evaluateTrust(_ context: TLSContext, peer: ChannelRole) -> PeerIdentity? {
        guard let leaf = unsafe SSL_SESSION_get0_peer(pointer),
            let store = unsafe X509_STORE_CTX_new()
        else { return nil }
        defer { unsafe X509_STORE_CTX_free(store) }
        let authorities = unsafe SSL_CTX_get_cert_store(context.pointer)
        guard unsafe X509_STORE_CTX_init(store, authorities, leaf, chain) == 1,
            unsafe X509_STORE_CTX_set_default(
                store, peer == .dialer ? "ssl_client" : "ssl_server") == 1
        else { return nil }
        return try? unsafe PeerCertificate(context: context, role: peer).evaluateTrust(store)
    }
}
