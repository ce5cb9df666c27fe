package import BLESecChannelCore
internal import BLESecPrimitives
package import BLESecTLSEngine

extension CertificateAuthority {
    /// Which certificate is to be revoked.
    package enum Revoked: Sendable {
        /// The recorded certificate with this serial number.
        case serial(SerialNumber)
        /// The certificate in this file.
        case file(String)

        /// Reads hexadecimal digits as a serial number, and any other word as a file's path.
        package init(_ word: String) {
            self = SerialNumber(word).map { .serial($0) } ?? .file(word)
        }
    }

    /// Revokes a certificate at `now`, in seconds since 1970, and returns it; a certificate that is
    /// already revoked keeps its first date.
    ///
    /// - Throws: `noSuchFile` for a number that was never issued; `badKey` for another authority's
    ///   certificate; `timedOut` when another process keeps the list locked.
    package func revoke(
        _ which: Revoked, passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> IssuedCertificate {
        // Before the lock is taken, since a person may have to type a passphrase.
        let key = try self.key(passphrase)
        let lock = try FileLock(folder.lock)
        let old = try revocations()
        var found = try certificate(which, old.dates)
        guard found.revocation == nil else { return found }
        var dates = old.dates
        dates[found.serial] = now
        let entries = dates.map { (serial: $0.key.der, date: $0.value) }.sorted {
            ($0.date, $0.serial.description) < ($1.date, $1.serial.description)
        }
        let list = try key.signed(
            CertificateProfile.revocations(
                entries, number: old.number &+ 1, issuer: certificate.subjectName,
                validity: min(now, expiry)...expiry, key: key.subjectPublicKeyInfo))
        let text = PEM.encode(list.span, label: "X509 CRL", preamble: "")
        guard text.count <= RevocationFile.maximumLength else {
            throw ChannelError(
                .limitExceeded,
                "\(folder.revoked) is full: \(RevocationFile.maximumLength) bytes; make a new "
                    + "authority")
        }
        try NewFile.replace(folder.revoked, text.span, for: .everyone)
        lock.release()
        found.revocation = now
        return found
    }

    /// The present revocation list.
    func revocations() throws(ChannelError) -> RevokedSerials {
        let path = folder.revoked
        guard let listing = try KeyListing(path) else {
            throw ChannelError(
                .noSuchFile,
                "\(path): no such file: put the newest copy of the list there, so that nothing "
                    + "revoked is forgotten")
        }
        do throws(ChannelError) {
            guard let blocks = CertificateFile.blocks(listing.text), blocks.count == 1,
                blocks[0].label == "X509 CRL"
            else {
                throw ChannelError(.badKey, "is not one revocation list in PEM form")
            }
            return try RevokedSerials(der: blocks[0].content, issuers: [certificate])
        } catch {
            throw error.naming(path)
        }
    }

    private func certificate(
        _ which: Revoked, _ dates: [SerialNumber: Int64]
    ) throws(ChannelError) -> IssuedCertificate {
        do throws(ChannelError) {
            return try issued(at: path(of: which), dates)
        } catch {
            guard case .serial(let serial) = which, error.code == .noSuchFile else { throw error }
            throw ChannelError(
                .noSuchFile,
                "\(folder.path) has issued no certificate \(serial): `blesec ca list "
                    + "\(folder.path)` shows them, and ./\(serial) would be a file")
        }
    }

    private func path(of which: Revoked) -> String {
        switch which {
        case .serial(let serial): folder.record(of: serial)
        case .file(let path): path
        }
    }
}
