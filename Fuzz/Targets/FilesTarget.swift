internal import BLESecChannelCore
@testable internal import BLESecCredentials
internal import BLESecPrimitives
internal import CBLESecOpenSSL

extension FuzzTarget {
    /// Files that other programs may have written: keys, certificates, passphrases, known peers and
    /// their addresses, deny lists and revocation lists.
    static let files = FuzzTarget(name: "files") { input in
        var script = Script(input)
        let kind = script.number(below: 8)
        let path = Folder.path + "/file"
        let bytes = script.takeRest()
        Folder.write(bytes, to: path)
        switch kind {
        case 0: readIdentity(path)
        case 1: readPeers(path)
        case 2:
            guard let file = try? DenyListFile(path) else { return }
            precondition(!must { try file.refresh() })
        case 3:
            guard let file = try? RevocationFile(path, authorities: Devices.authorities) else {
                return
            }
            _ = try? file.current(at: Devices.now)
        case 4:
            _ = try? CertificateFile.authorities(path)
            _ = try? CertificateFile.identity(certificate: path, key: path, now: Devices.now)
        case 5: _ = try? DeviceKey.subjectPublicKeyInfo(path)
        case 6: readAddresses(path)
        default:
            let limit = PassphraseSource.maximumLength
            if let line = SecretFile.firstLine(of: bytes.span, limit: limit) {
                precondition((1...limit).contains(line.count))
            }
        }
    } seeds: {
        let key = Devices.dialer
        let plain = key.keyPair.withPrivateKey { PrivateKeyInfo.encode($0, curve: .x25519) }
        let identity = pem(plain, "PRIVATE KEY", "# noise-hash: BLAKE2s\n")
        let peer = key.fingerprint
        let certificate = pem(Devices.authority, "CERTIFICATE")
        let list = pem(Devices.signedRevocations, "X509 CRL")
        let deviceKey = pem(Devices.keyInfo(.dialer), "PRIVATE KEY")
        let protected = pem(encrypted(plain), "ENCRYPTED PRIVATE KEY")
        for text in [identity, protected] {
            Folder.write(text, to: Folder.path + "/file")
            precondition(readIdentity(Folder.path + "/file"), "a valid identity file is refused")
        }
        return [
            [0] + identity, [0] + protected,
            [1] + Array("# peers\na%20lamp \(peer) in the hall\nb\t\(peer)\r\n".utf8),
            [2] + Array("\(peer) lost\n".utf8), [3] + Array("# none\n\(peer)\n".utf8) + list,
            [3] + Devices.signedRevocations, [4] + certificate + certificate,
            [4] + pem(Devices.signed(Devices.unsignedCertificate(.dialer)), "CERTIFICATE")
                + deviceKey,
            [5] + deviceKey, [5] + identity, [7] + Array("a phrase\r\n".utf8),
            [6] + Array("# last\n\(peer) l2cap:AA:BB:CC:DD:EE:FF/0x80%20random\n".utf8),
        ]
    }

    /// Returns whether a file is an identity file. If it is, checks that its identity, written and
    /// read again, is the same.
    @discardableResult
    private static func readIdentity(_ path: String) -> Bool {
        let phrase = PassphraseSource { _, _ in SecretBytes(copying: Array("phrase".utf8).span) }
        guard let identity = try? IdentityFile.load(path, passphrase: phrase) else { return false }
        let copy = Folder.path + "/copy"
        must { try IdentityFile.create(copy, holding: identity) }
        let again = must { try IdentityFile.load(copy) }
        precondition(again.publicKey == identity.publicKey && again.hash == identity.hash)
        Folder.remove(copy)
        return true
    }

    private static func readPeers(_ path: String) {
        let file = KnownPeersFile(path)
        guard let peers = try? file.peers() else { return }
        for peer in peers {
            precondition(must { try file.key(named: peer.name) } == peer.key)
            precondition(must { try file.contains(peer.key) })
        }
        // Adds a peer whose name has characters that must be escaped, and reads the file again.
        let name = peers.first.map { $0.name + "'s #2\n" } ?? "new"
        let key = Devices.acceptor.fingerprint
        guard peers.allSatisfy({ $0.name != name }), name.utf8.count <= 255 else { return }
        must { try file.bind(name, to: key) }
        let fresh = KnownPeersFile(path)
        precondition(must { try fresh.key(named: name) } == key)
        if let old = peers.first?.name, peers.allSatisfy({ $0.name != "a b" }) {
            rename(old, to: "a b", in: path)
            rename("a b", to: old, in: path)
        }
        precondition(must { try fresh.remove(name) })
        precondition(must { try KnownPeersFile(path).peers() } == peers)
    }

    /// Renames a peer, and checks that nothing else has changed.
    private static func rename(_ name: String, to newName: String, in path: String) {
        let before = must { try KnownPeersFile(path).peers() }
        precondition(must { try KnownPeersFile(path).rename(name, to: newName) })
        let after = must { try KnownPeersFile(path).peers() }
        precondition(before.count == after.count)
        for (old, new) in zip(before, after) {
            precondition(new.name == (old.name == name ? newName : old.name))
            precondition((old.key, old.comment, old.line) == (new.key, new.comment, new.line))
        }
    }

    private static func readAddresses(_ path: String) {
        let file = LastAddressesFile(path)
        let (seedPeer, recordedPeer) = (Devices.dialer.fingerprint, Devices.acceptor.fingerprint)
        guard (try? file.record("a b%\n", of: recordedPeer)) != nil else { return }
        precondition(must { try file.address(of: recordedPeer) } == "a b%\n")
        let seedAddress = must { try file.address(of: seedPeer) }
        let others = must { try file.addresses() }.filter { $0.key != recordedPeer }
        precondition(others[seedPeer] == seedAddress)
        precondition(must { try file.remove(recordedPeer) })
        precondition(must { try file.addresses() } == others)
    }

    private static func pem(
        _ content: borrowing SecretBytes, _ label: String, _ preamble: String = ""
    ) -> [UInt8] {
        PEM.encode(content.span, label: label, preamble: preamble).span.array
    }

    private static func pem(_ content: [UInt8], _ label: String) -> [UInt8] {
        PEM.encode(content.span, label: label, preamble: "").span.array
    }

    /// An encrypted key that is cheap to decrypt, so that a run is short.
    private static func encrypted(_ info: borrowing SecretBytes) -> [UInt8] {
        var salt: [UInt8] = [1, 2, 3, 4, 5, 6, 7, 8]
        let algorithm = unsafe PKCS5_pbe2_set(EVP_aes_256_cbc(), 1, &salt, Int32(salt.count))
        let encryptedKey = unsafe info.withUnsafeBytes { bytes in
            var position = bytes.baseAddress
            let key = unsafe d2i_PKCS8_PRIV_KEY_INFO(nil, &position, bytes.count)
            defer { unsafe PKCS8_PRIV_KEY_INFO_free(key) }
            return unsafe PKCS8_set0_pbe("phrase", 6, key, algorithm)
        }
        defer { unsafe X509_SIG_free(encryptedKey) }
        var encoded = [UInt8](repeating: 0, count: Int(unsafe i2d_X509_SIG(encryptedKey, nil)))
        unsafe encoded.withUnsafeMutableBufferPointer { buffer in
            var position = buffer.baseAddress
            _ = unsafe i2d_X509_SIG(encryptedKey, &position)
        }
        return encoded
    }
}
