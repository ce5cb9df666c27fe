internal import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import Glibc

/// What an authority keeps about its certificates: a copy of each, and the revocation list.
struct AuthorityRecords: Sendable {
    let folder: AuthorityFolder
    /// The authority's own certificate.
    let authority: Certificate

    /// The recorded certificates, in the order in which their validity begins.
    func certificates() throws(ChannelError) -> [IssuedCertificate] {
        let revocationDates = try revocations().dates
        let found = try folder.serials().map { serial throws(ChannelError) in
            try certificate(serial, revocationDates)
        }
        return found.sorted {
            $0.validity.lowerBound == $1.validity.lowerBound
                ? $0.serial.der.lexicographicallyPrecedes($1.serial.der)
                : $0.validity.lowerBound < $1.validity.lowerBound
        }
    }

    /// The recorded certificate with this serial number; throws if its file holds
    /// another certificate.
    func certificate(
        _ serial: SerialNumber, _ revocations: [SerialNumber: Int64]
    ) throws(ChannelError) -> IssuedCertificate {
        let path = folder.recordPath(of: serial)
        let found = try certificate(at: path, revocations)
        guard found.serial == serial else {
            throw .badKey("\(path) holds the certificate \(found.serial)")
        }
        return found
    }

    /// The first certificate in a file; throws unless this authority issued it.
    func certificate(
        at path: String, _ revocations: [SerialNumber: Int64]
    ) throws(ChannelError) -> IssuedCertificate {
        let found = try CertificateFile.certificates(path)
        return try withPathInErrors(path) { () throws(ChannelError) in
            let certificate = try Certificate(der: found[0])
            guard certificate.isIssued(by: authority) else {
                throw .badKey("holds a certificate of another authority")
            }
            return try IssuedCertificate(certificate, revocations: revocations)
        }
    }

    func revocations() throws(ChannelError) -> SignedRevocationList {
        let path = folder.revocationListPath
        guard let listing = try ListFile(path) else {
            throw ChannelError(
                .noSuchFile,
                "\(path): no such file: put the newest copy of the list there, so that nothing "
                    + "revoked is forgotten")
        }
        let parts = try RevocationParts(listing.text, path)
        guard parts.lists.count == 1, parts.keys.isEmpty else {
            throw .badKey(
                "\(path) is not the authority's revocation list alone: `blesec ca` replaces this "
                    + "file, so put revoked keys and other lists into another file for the devices")
        }
        return try withPathInErrors(path) { () throws(ChannelError) in
            try SignedRevocationList(der: parts.lists[0], issuers: [authority])
        }
    }

    /// Records a certificate, given in DER form. An existing file is never replaced.
    func add(_ certificate: [UInt8], _ serial: SerialNumber) throws(ChannelError) {
        try PEM.write(certificate, "CERTIFICATE", to: folder.recordPath(of: serial))
    }

    /// Replaces the file of the revocation list; `list` is in DER form, the file in PEM form. If
    /// the name is a symbolic link, replaces the file to which it leads.
    func replaceRevocations(_ list: [UInt8]) throws(ChannelError) {
        let text = PEM.encode(list.span, label: "X509 CRL", preamble: "")
        guard text.count <= RevocationFile.maximumLength else {
            throw ChannelError(
                .limitExceeded,
                "\(folder.revocationListPath) is full: \(RevocationFile.maximumLength) bytes; make "
                    + "a new authority")
        }
        let path = try TrustedFile.open(folder.revocationListPath).path
        try NewFile.replace(path, text.span, for: .everyone)
    }

    /// Writes the file of the revocation list again, so that its content stays when the system
    /// stops: an earlier process may have replaced the file, and then have failed to write its name
    /// to the disk.
    func rewriteRevocations() throws(ChannelError) {
        let path = try TrustedFile.open(folder.revocationListPath).path
        guard let listing = try ListFile(path) else { throw .cannotOpen(path, ENOENT) }
        try NewFile.replace(path, listing.text.span, for: .everyone)
    }
}

extension PEM {
    /// Writes DER bytes to a new file that everyone may read.
    static func write(_ der: [UInt8], _ label: String, to path: String) throws(ChannelError) {
        let text = encode(der.span, label: label, preamble: "")
        try NewFile.create(path, text.span, for: .everyone)
    }
}
