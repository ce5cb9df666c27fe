package import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import Glibc

extension CertificateAuthority {
    /// Issues a certificate for a device, valid for `days` days from `now`, in seconds since 1970.
    ///
    /// The certificate is written to `PREFIX.pem`. `keyPath` names a file with the device's key; if
    /// it is nil, a new key is written to `PREFIX.key`. The authority records a copy of the
    /// certificate first. `passphrase` opens the authority's key.
    /// - Throws: `cannotCreate`, mainly when a file exists; `configuration` for an invalid number
    ///   of days, or one that exceeds the authority's own validity; `badKey`.
    package func issue(
        _ uri: SubjectURI, days: Int, key keyPath: String?, to prefix: String,
        passphrase: PassphraseSource?, now: Int64
    ) throws(ChannelError) -> IssuedCertificate {
        let certificatePath = prefix + ".pem"
        let newKeyPath = prefix + ".key"
        let validity = try checkedValidity(days: days, from: now)
        try NewFile.refuseIfPresent(certificatePath)
        guard let keyPath else {
            try NewFile.refuseIfPresent(newKeyPath)
            let authority = try key(passphrase)
            let device = try SigningKey.generate()
            let text = try IdentityFile.text(
                device.privateKeyInfo, for: newKeyPath, passphrase: nil)
            let (der, issued) = try record(uri, validity, device.subjectPublicKeyInfo, authority)
            try NewFile.create(newKeyPath, text.span)
            do throws(ChannelError) {
                try Self.write(der, "CERTIFICATE", to: certificatePath)
            } catch {
                // A key without its certificate is useless, and no copy of the key exists.
                unsafe unlink(newKeyPath)
                throw error
            }
            return issued
        }
        let info = try DeviceKey.subjectPublicKeyInfo(keyPath)
        let (der, issued) = try record(uri, validity, info, try key(passphrase))
        try Self.write(der, "CERTIFICATE", to: certificatePath)
        return issued
    }

    /// Signs a certificate and records it. No lock is needed: the serial number is random, and an
    /// existing file is never replaced.
    private func record(
        _ uri: SubjectURI, _ validity: ClosedRange<Int64>, _ info: [UInt8],
        _ authority: borrowing SigningKey
    ) throws(ChannelError) -> (der: [UInt8], issued: IssuedCertificate) {
        let serial = Self.newSerial()
        let der = try authority.signed(
            CertificateProfile.device(
                uri: uri, serial: serial.der, issuer: certificate.subjectName,
                authorityKey: certificate.subjectPublicKeyInfo, validity: validity, key: info))
        let issued = try IssuedCertificate(try Certificate(der: der))
        try Self.write(der, "CERTIFICATE", to: folder.record(of: serial))
        return (der, issued)
    }

    private func checkedValidity(
        days: Int, from now: Int64
    ) throws(ChannelError) -> ClosedRange<Int64> {
        let own = self.validity
        guard own.contains(now) else {
            throw ChannelError(
                .badKey,
                "\(folder.certificate) is valid from \(CalendarTime(own.lowerBound).text) to "
                    + "\(CalendarTime(own.upperBound).text), which is not now")
        }
        let validity = try Self.validity(days: days, from: now)
        guard validity.upperBound <= own.upperBound else {
            throw ChannelError(
                .configuration,
                "the authority itself ends on \(CalendarTime(own.upperBound).text): issue for "
                    + "\((own.upperBound - now) / 86_400) days at the most")
        }
        return validity
    }
}
