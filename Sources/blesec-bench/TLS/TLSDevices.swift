internal import BLESec
internal import BLESecCredentials
internal import CBLESecBench
internal import Glibc

/// An authority and the certificates of two devices, as `blesec ca` makes them, for one run of the
/// bench.
final class TLSDevices: Sendable {
    /// Made on first use, and kept for the run.
    private static let instance = Result { try TLSDevices() }

    static func shared() throws -> TLSDevices { try instance.get() }

    /// How many days the devices' certificates are valid: longer than a run takes, which may be a
    /// day, and for a `blesec-bench serve` that is left running.
    private static let days = 30

    let contexts: BothSides<TLSContext>
    /// The same two devices, for OpenSSL alone.
    let rawTLS: RawTLS

    private init() throws {
        var template = Array("/tmp/blesec-bench-XXXXXX".utf8CString)
        guard let made = unsafe mkdtemp(&template) else {
            throw ChannelError(
                .cannotCreate, "no folder can be made in /tmp", underlying: .errno(errno))
        }
        let folder = unsafe String(cString: made)
        // The files can be removed, since their contents are in memory.
        defer { unsafe blesec_bench_remove(folder) }
        let now = Int64(time(nil))
        let authority = try CertificateAuthority.create(
            folder + "/ca", name: nil, days: Self.days + 1, passphrase: nil, now: now)
        let authorities = try CertificateFile.authorities(authority.certificatePath)
        func device(_ name: String) throws -> TLSContext {
            _ = try authority.issue(
                SubjectURI("blesec://devices/\(name)"), days: Self.days, key: nil,
                to: "\(folder)/\(name)", passphrase: nil, now: now)
            return try TLSContext(
                identity: CertificateFile.identity(
                    certificate: "\(folder)/\(name).pem", key: "\(folder)/\(name).key", now: now),
                authorities: authorities)
        }
        contexts = try BothSides(dialer: device("dialer"), acceptor: device("acceptor"))
        rawTLS = try RawTLS(
            authority: authority.certificatePath, dialer: "\(folder)/dialer",
            acceptor: "\(folder)/acceptor")
    }

    func context(_ role: ChannelRole) -> TLSContext {
        role == .dialer ? contexts.dialer : contexts.acceptor
    }
}
