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

    /// How many days the devices' certificates are valid. A run may take a day, and a `blesec-bench
    /// serve` may be left running for longer.
    private static let days = 30

    let contexts: BothSides<TLSContext>
    /// The same two devices, for OpenSSL alone.
    let rawTLS: RawTLS

    private init() throws {
        var template = Array("/tmp/blesec-bench-XXXXXX".utf8CString)
        let made = unsafe template.withUnsafeMutableBufferPointer { buffer in
            unsafe buffer.baseAddress.flatMap { unsafe mkdtemp($0) }.map {
                unsafe String(cString: $0)
            }
        }
        guard let made else {
            throw ChannelError(
                .cannotCreate, "no folder can be made in /tmp", underlying: .errno(errno))
        }
        let folder = made
        // At the end of this initializer, all files have been read into memory.
        defer { unsafe blesec_bench_remove(folder) }
        let now = Int64(time(nil))
        let authority = try CertificateAuthority.create(
            folder + "/ca", name: nil, days: Self.days + 1, passphrase: nil, now: now)
        let authorities = try CertificateFile.authorities(authority.certificatePath)
        func makeContext(ofDevice name: String) throws -> TLSContext {
            _ = try authority.issue(
                SubjectURI("blesec://devices/\(name)"), days: Self.days, key: nil,
                to: "\(folder)/\(name)", passphrase: nil, now: now)
            return try TLSContext(
                identity: CertificateFile.identity(
                    certificate: "\(folder)/\(name).pem", key: "\(folder)/\(name).key", now: now),
                authorities: authorities)
        }
        contexts = try BothSides(
            dialer: makeContext(ofDevice: "dialer"), acceptor: makeContext(ofDevice: "acceptor"))
        rawTLS = try RawTLS(
            authority: authority.certificatePath, dialer: "\(folder)/dialer",
            acceptor: "\(folder)/acceptor")
    }

    func context(_ role: ChannelRole) -> TLSContext {
        role == .dialer ? contexts.dialer : contexts.acceptor
    }
}
