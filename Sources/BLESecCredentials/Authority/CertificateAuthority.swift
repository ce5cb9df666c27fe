package import BLESecChannelCore
internal import BLESecPrimitives
package import BLESecTLSEngine
internal import Glibc

/// A small authority for device certificates, kept in a directory of its own.
///
/// On a file system with hard links, every file appears complete or not at all. Only the revocation
/// list is ever replaced, under a lock. So several processes can use the directory, and each may be
/// killed at any time.
package struct CertificateAuthority: Sendable {
    /// The longest common name of an authority in bytes (RFC 5280, `ub-common-name`).
    package static let maximumNameLength = 64
    /// The longest validity of a certificate in days: a century.
    package static let maximumDays = 36_525

    let folder: AuthorityFolder
    private let records: AuthorityRecords
    let certificate: Certificate
    let validity: ClosedRange<Int64>

    package var certificatePath: String { folder.certificatePath }
    package var revocationListPath: String { folder.revocationListPath }
    /// The fingerprint of the authority's key.
    package var fingerprint: Fingerprint {
        Fingerprint(subjectPublicKeyInfo: certificate.subjectPublicKeyInfo)
    }
    /// The last second of the validity of the authority's certificate, in seconds since 1970.
    package var expiry: Int64 { validity.upperBound }

    /// Opens the authority in a directory.
    ///
    /// - Throws: `noSuchFile` when there is none; `permission` when this user may not read it;
    ///   `badKey` when other users may enter the directory, or its certificate is not an
    ///   authority's.
    package init(_ directory: String) throws(ChannelError) {
        folder = AuthorityFolder(directory)
        try folder.requirePrivate()
        let path = folder.certificatePath
        let found = try CertificateFile.certificates(path)
        certificate = try withPathInErrors(path) { () throws(ChannelError) in
            try Certificate(der: found[0])
        }
        guard found.count == 1, certificate.isAuthority, let validity = certificate.validity else {
            throw .badKey("\(path) is not the certificate of one authority")
        }
        self.validity = validity
        records = AuthorityRecords(folder: folder, authority: certificate)
    }

    /// Makes an authority in a directory that is new or empty; if this fails, no file is left
    /// behind. If the process is killed meanwhile, the directory is incomplete, and no call uses it.
    ///
    /// `name` is the authority's common name: 1 to 64 printable ASCII characters. If it is nil, the
    /// name is `blesec` and eight random hexadecimal digits, since devices tell authorities apart
    /// by name. The validity ends `days` days after `now` (seconds since 1970). `passphrase`
    /// encrypts the authority's key.
    /// - Throws: `cannotCreate`, mainly when the directory is not empty; `configuration` for an
    ///   invalid name or number of days; `badKey` in a directory that other users can write to;
    ///   what `passphrase` throws.
    package static func create(
        _ directory: String, name: String?, days: Int, passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> CertificateAuthority {
        let folder = AuthorityFolder(directory)
        let name = try checkedName(name ?? uniqueName)
        let validity = try validity(days: days, from: now)
        // For `.`, `requireTrustedDirectory` would check the authority's directory itself, and not
        // the directory above it. Others may be able to write to the authority's directory until
        // `make()` closes it.
        if folder.path != "." { try TrustedFile.requireTrustedDirectory(of: folder.path) }
        try folder.requireAbsentOrEmpty()
        let key = try SigningKey.generate()
        let keyText = try IdentityFile.pemText(
            key.privateKeyInfo, for: folder.keyPath, passphrase: passphrase)
        let subject = CertificateProfile.name(name)
        let certificate = try key.signed(
            CertificateProfile.authority(
                name: subject, serial: newSerial().der, validity: validity,
                key: key.subjectPublicKeyInfo))
        let list = try key.signed(
            CertificateProfile.revocations(
                [], number: 1, issuer: subject, validity: now...validity.upperBound,
                key: key.subjectPublicKeyInfo))

        let isNew = try folder.make()
        do throws(ChannelError) {
            try NewFile.create(folder.keyPath, keyText.span)
            try PEM.write(list, "X509 CRL", to: folder.revocationListPath)
            // The last file: a directory without it is no authority.
            try PEM.write(certificate, "CERTIFICATE", to: folder.certificatePath)
        } catch {
            folder.remove(isNew: isNew)
            throw error
        }
        return try CertificateAuthority(folder.path)
    }

    /// All issued certificates, the oldest first.
    ///
    /// - Throws: the errors of ``init(_:)``; `badKey` when a recorded file was altered.
    package func certificates() throws(ChannelError) -> [IssuedCertificate] {
        try records.certificates()
    }

    /// Issues a certificate for a device, valid until `days` days after `now` (seconds since 1970).
    ///
    /// The certificate is written to `PREFIX.pem`. `keyPath` names a file with the device's key; if
    /// it is nil, a new key is written to `PREFIX.key`. Before it writes these files, the authority
    /// records a copy of the certificate. `passphrase` opens the authority's key.
    /// - Throws: `cannotCreate`, mainly when an output file exists; `configuration` for an invalid
    ///   number of days, or if the authority's own validity ends earlier; `badKey` for a key that
    ///   cannot be used, or when the authority's own certificate is not valid at `now`.
    package func issue(
        _ uri: SubjectURI, days: Int, key keyPath: String?, to prefix: String,
        passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> IssuedCertificate {
        let certificatePath = prefix + ".pem"
        let newKeyPath = prefix + ".key"
        let validity = try checkedValidity(days: days, from: now)
        try NewFile.requireDirectory(of: certificatePath)
        try NewFile.refuseIfPresent(certificatePath)
        guard let keyPath else {
            try NewFile.refuseIfPresent(newKeyPath)
            let authorityKey = try key(passphrase)
            let deviceKey = try SigningKey.generate()
            let text = try IdentityFile.pemText(
                deviceKey.privateKeyInfo, for: newKeyPath, passphrase: nil)
            let (der, issued) = try record(
                uri, validity, deviceKey.subjectPublicKeyInfo, authorityKey)
            try NewFile.create(newKeyPath, text.span)
            do throws(ChannelError) {
                try PEM.write(der, "CERTIFICATE", to: certificatePath)
            } catch {
                // A key without its certificate is useless, and would make the next call fail.
                unsafe unlink(newKeyPath)
                throw error
            }
            return issued
        }
        let publicKey = try DeviceKey.subjectPublicKeyInfo(keyPath)
        let (der, issued) = try record(uri, validity, publicKey, try key(passphrase))
        try PEM.write(der, "CERTIFICATE", to: certificatePath)
        return issued
    }

    /// Signs a certificate and records it. No lock is needed: the serial number is random, and an
    /// existing file is never replaced.
    private func record(
        _ uri: SubjectURI, _ validity: ClosedRange<Int64>, _ publicKey: [UInt8],
        _ authorityKey: borrowing SigningKey
    ) throws(ChannelError) -> (der: [UInt8], issued: IssuedCertificate) {
        let serial = Self.newSerial()
        let der = try authorityKey.signed(
            CertificateProfile.device(
                uri: uri, serial: serial.der, issuer: certificate.subjectName,
                authorityKey: certificate.subjectPublicKeyInfo, validity: validity,
                key: publicKey))
        let issued = try IssuedCertificate(try Certificate(der: der))
        try records.add(der, serial)
        return (der, issued)
    }

    private func checkedValidity(
        days: Int, from now: Int64
    ) throws(ChannelError) -> ClosedRange<Int64> {
        let own = self.validity
        guard own.contains(now) else {
            throw .badKey(
                "\(folder.certificatePath) is valid from \(CalendarTime(own.lowerBound).text) to "
                    + "\(CalendarTime(own.upperBound).text), which is not now")
        }
        let validity = try Self.validity(days: days, from: now)
        guard validity.upperBound <= own.upperBound else {
            let daysLeft = (own.upperBound - now) / 86_400
            let remedy =
                daysLeft > 0
                ? "issue for \(daysLeft) days at the most"
                : "that is in less than a day, so make a new authority"
            throw ChannelError(
                .configuration,
                "the authority itself ends on \(CalendarTime(own.upperBound).text): \(remedy)")
        }
        return validity
    }

    /// Which certificate is to be revoked.
    package enum RevocationTarget: Sendable {
        /// The recorded certificate with this serial number. `word` is the word of a command line
        /// that was read as the number; a user may have meant a file with this name.
        case serial(SerialNumber, word: String? = nil)
        /// The certificate in this file.
        case file(String)

        /// Reads hexadecimal digits as a serial number, and any other word as a file's path.
        package init(_ word: String) {
            self = SerialNumber(word).map { .serial($0, word: word) } ?? .file(word)
        }
    }

    /// Revokes a certificate at `now`, in seconds since 1970, and returns the certificate. If the
    /// certificate was revoked before, the earlier date stays.
    ///
    /// - Throws: `noSuchFile` for a serial number that was never issued; `badKey` for another
    ///   authority's certificate, when the recorded file or the list was altered, or when the
    ///   authority's certificate has expired at `now`; `timedOut` when the list stays locked.
    package func revoke(
        _ target: RevocationTarget, passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> IssuedCertificate {
        // Perhaps this machine's clock is ahead. The list would get the date of that clock, which
        // would be in the future for the devices.
        guard now < expiry else {
            throw .badKey(
                "\(folder.certificatePath) has expired on \(CalendarTime(expiry).text), if this "
                    + "machine's clock is right")
        }
        // The key is read before the lock is taken, since a person may have to type a passphrase.
        let key = try self.key(passphrase)
        let lock = try FileLock(folder.lockPath)
        let old = try records.revocations()
        var found = try certificate(target, old.dates)
        guard found.revocation == nil else {
            try records.rewriteRevocations()
            lock.release()
            return found
        }
        guard let oldNumber = old.number, oldNumber < .max else {
            throw .badKey("\(revocationListPath) has a CRL number that cannot be increased")
        }
        var dates = old.dates
        dates[found.serial] = now
        let entries = dates.map { (serial: $0.key.der, date: $0.value) }.sorted {
            $0.date == $1.date
                ? $0.serial.lexicographicallyPrecedes($1.serial) : $0.date < $1.date
        }
        let list = try key.signed(
            CertificateProfile.revocations(
                entries, number: oldNumber + 1, issuer: certificate.subjectName,
                validity: now...expiry, key: key.subjectPublicKeyInfo))
        try records.replaceRevocations(list)
        lock.release()
        found.revocation = now
        return found
    }

    private func certificate(
        _ target: RevocationTarget, _ dates: [SerialNumber: Int64]
    ) throws(ChannelError) -> IssuedCertificate {
        let serial: SerialNumber
        let word: String
        switch target {
        case .serial(let number, word: let given):
            serial = number
            word = given ?? number.description
        case .file(let path): return try records.certificate(at: path, dates)
        }
        do throws(ChannelError) {
            return try records.certificate(serial, dates)
        } catch {
            guard error.code == .noSuchFile else { throw error }
            throw ChannelError(
                .noSuchFile,
                "\(folder.path) has issued no certificate \(serial): `blesec ca list "
                    + "\(folder.path.shellWord)` lists its certificates; if \(word) is a file, "
                    + "write ./\(word)")
        }
    }

    /// The private key, which must match the certificate.
    private func key(_ passphrase: PassphraseSource?) throws(ChannelError) -> SigningKey {
        let path = folder.keyPath
        let info = try IdentityFile.privateKeyInfo(path, passphrase: passphrase)
        let key: SigningKey
        do throws(ChannelError) {
            key = try SigningKey(info)
        } catch {
            throw error.withPath(path)
        }
        guard key.subjectPublicKeyInfo == certificate.subjectPublicKeyInfo else {
            throw .badKey("\(path) is not the key of \(folder.certificatePath)")
        }
        return key
    }

    /// The validity from an hour before `now` to `days` days after `now`.
    static func validity(days: Int, from now: Int64) throws(ChannelError) -> ClosedRange<Int64> {
        guard (1...maximumDays).contains(days) else {
            throw ChannelError(
                .configuration, "a certificate is issued for 1 to \(maximumDays) days")
        }
        return now - CertificateProfile.backdating...now + Int64(days) * 86_400
    }

    /// Eight random bytes. The first two bits are 01, so that every number is positive and has the
    /// same length; 62 bits are unpredictable.
    static func newSerial() -> SerialNumber {
        var bytes = randomBytes(count: 8)
        bytes[0] = bytes[0] & 0x3F | 0x40
        guard let serial = SerialNumber(bytes: bytes) else {
            preconditionFailure("eight bytes are not a serial number")
        }
        return serial
    }

    private static var uniqueName: String {
        let digits = randomBytes(count: 4).map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }
        return "blesec " + digits.joined()
    }

    private static func checkedName(_ name: String) throws(ChannelError) -> String {
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
