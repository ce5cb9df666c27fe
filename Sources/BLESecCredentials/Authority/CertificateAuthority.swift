package import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import Glibc

/// A small authority for device certificates, kept in a directory of its own.
///
/// Every file appears complete or not at all. Only the revocation list is ever replaced, under a
/// lock. So several processes can use the directory, and each may be killed at any time.
package struct CertificateAuthority: Sendable {
    /// The longest common name of an authority in bytes (RFC 5280, `ub-common-name`).
    package static let maximumNameLength = 64
    /// The longest validity of a certificate in days: a century.
    package static let maximumDays = 36_525

    let folder: AuthorityFolder
    let certificate: Certificate
    let validity: ClosedRange<Int64>

    /// The path of the authority's own certificate.
    package var certificatePath: String { folder.certificate }
    /// The path of its revocation list.
    package var revokedPath: String { folder.revoked }
    /// The fingerprint of its key.
    package var fingerprint: Fingerprint {
        Fingerprint(subjectPublicKeyInfo: certificate.subjectPublicKeyInfo)
    }
    /// The last second of its certificate's validity, since 1970.
    package var expiry: Int64 { validity.upperBound }

    /// Opens the authority in a directory.
    ///
    /// - Throws: `noSuchFile` when there is none; `permission`; `badKey` when other users may enter
    ///   the directory, or its certificate is not an authority's.
    package init(_ directory: String) throws(ChannelError) {
        folder = AuthorityFolder(directory)
        try folder.requireClosed()
        let path = folder.certificate
        let found = try CertificateFile.certificates(path)
        do throws(ChannelError) {
            certificate = try Certificate(der: found[0])
        } catch {
            throw error.naming(path)
        }
        guard found.count == 1, certificate.isAuthority, let validity = certificate.validity else {
            throw ChannelError(.badKey, "\(path) is not the certificate of one authority")
        }
        self.validity = validity
    }

    /// Makes an authority in a directory that is new or empty; if this fails, nothing is left
    /// behind.
    ///
    /// `name` is its common name: 1 to 64 printable ASCII characters. If it is nil, a unique name
    /// is made, since devices find their authority by its name. `days` is the validity from `now`,
    /// in seconds since 1970. `passphrase` encrypts its key.
    /// - Throws: `cannotCreate`, mainly when the directory is not empty; `configuration` for an
    ///   invalid name or number of days; `badKey` in a directory that other users can write to;
    ///   what `passphrase` throws.
    package static func create(
        _ directory: String, name: String?, days: Int, passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> CertificateAuthority {
        let folder = AuthorityFolder(directory)
        let name = try checked(name ?? uniqueName)
        let validity = try validity(days: days, from: now)
        do throws(TrustedFile.Failure) {
            try TrustedFile.requireDirectory(NewFile.directory(of: folder.path))
        } catch {
            guard case .system(let number) = error else { throw error.error(folder.path) }
            throw .system(.cannotCreate, "\(folder.path) cannot be created", number)
        }
        try folder.requireFree()
        let key = try SigningKey.generate()
        let keyText = try IdentityFile.text(
            key.privateKeyInfo, for: folder.key, passphrase: passphrase)
        let subject = CertificateProfile.name(name)
        let certificate = try key.signed(
            CertificateProfile.authority(
                name: subject, serial: newSerial().der, validity: validity,
                key: key.subjectPublicKeyInfo))
        let list = try key.signed(
            CertificateProfile.revocations(
                [], number: 1, issuer: subject, validity: now...validity.upperBound,
                key: key.subjectPublicKeyInfo))

        let suffix = randomBytes(count: 8).map { String($0, radix: 16) }.joined()
        let draft = AuthorityFolder(NewFile.directory(of: folder.path) + "/.blesec-" + suffix)
        do throws(ChannelError) {
            try draft.make(for: folder)
            try NewFile.create(draft.key, keyText.span)
            try write(certificate, "CERTIFICATE", to: draft.certificate)
            try write(list, "X509 CRL", to: draft.revoked)
            try draft.move(to: folder)
        } catch {
            draft.remove()
            throw error
        }
        return try CertificateAuthority(folder.path)
    }

    /// All issued certificates, the oldest first.
    ///
    /// - Throws: the errors of opening; `badKey` when a recorded file was altered.
    package func certificates() throws(ChannelError) -> [IssuedCertificate] {
        let revocations = try self.revocations().dates
        var found: [IssuedCertificate] = []
        for serial in try folder.serials() {
            found.append(try issued(serial, revocations))
        }
        return found.sorted {
            ($0.validity.lowerBound, $0.serial.description)
                < ($1.validity.lowerBound, $1.serial.description)
        }
    }

    /// A recorded certificate.
    func issued(
        _ serial: SerialNumber, _ revocations: [SerialNumber: Int64] = [:]
    ) throws(ChannelError) -> IssuedCertificate {
        try issued(at: folder.record(of: serial), revocations)
    }

    /// The first certificate in a file, which this authority must have issued.
    func issued(
        at path: String, _ revocations: [SerialNumber: Int64]
    ) throws(ChannelError) -> IssuedCertificate {
        let found = try CertificateFile.certificates(path)
        do throws(ChannelError) {
            let certificate = try Certificate(der: found[0])
            guard certificate.isIssued(by: self.certificate) else {
                throw ChannelError(.badKey, "holds a certificate of another authority")
            }
            return try IssuedCertificate(certificate, revocations: revocations)
        } catch {
            throw error.naming(path)
        }
    }

    /// The private key, which must match the certificate.
    func key(_ passphrase: PassphraseSource?) throws(ChannelError) -> SigningKey {
        let path = folder.key
        let info = try IdentityFile.privateKeyInfo(path, passphrase: passphrase)
        let key: SigningKey
        do throws(ChannelError) {
            key = try SigningKey(info)
        } catch {
            throw error.naming(path)
        }
        guard key.subjectPublicKeyInfo == certificate.subjectPublicKeyInfo else {
            throw ChannelError(.badKey, "\(path) is not the key of \(folder.certificate)")
        }
        return key
    }

    /// The validity from an hour before `now` for `days` days.
    static func validity(days: Int, from now: Int64) throws(ChannelError) -> ClosedRange<Int64> {
        guard (1...maximumDays).contains(days) else {
            throw ChannelError(
                .configuration, "a certificate is issued for 1 to \(maximumDays) days")
        }
        return now - CertificateProfile.backdating...now + Int64(days) * 86_400
    }

    /// Eight random bytes, of which two bits are set so that every number has the same length: 62
    /// unpredictable bits.
    static func newSerial() -> SerialNumber {
        var bytes = randomBytes(count: 8)
        bytes[0] = bytes[0] & 0x3F | 0x40
        guard let serial = SerialNumber(bytes: bytes) else { preconditionFailure("eight bytes") }
        return serial
    }

    static func write(
        _ der: [UInt8], _ label: String, to path: String
    ) throws(ChannelError) {
        let text = PEM.encode(der.span, label: label, preamble: "")
        try NewFile.create(path, text.span, for: .everyone)
    }

    private static var uniqueName: String {
        let digits = randomBytes(count: 4).map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }
        return "blesec " + digits.joined()
    }

    private static func checked(_ name: String) throws(ChannelError) -> String {
        guard (1...maximumNameLength).contains(name.utf8.count),
            name.utf8.allSatisfy({ (0x20...0x7E).contains($0) })
        else {
            throw ChannelError(
                .configuration,
                "an authority's name is 1 to \(maximumNameLength) printable ASCII characters")
        }
        return name
    }
}

extension SigningKey {
    /// A certificate or list with this content and this key's signature.
    func signed(_ content: [UInt8]) throws(ChannelError) -> [UInt8] {
        CertificateProfile.signed(content, try sign(content))
    }
}
