import BLESecChannelCore
import BLESecCredentials
import BLESecLocking
import BLESecPrimitives
import TestSupport
import Testing

/// Keys that this module writes, and keys that OpenSSL writes.
@Suite struct IdentityFileTests {
    let folder = ScratchFolder()

    @Test("a new key is a file of mode 0600 that openssl pkey reads", arguments: Curve.allCases)
    func readByOpenSSL(_ curve: Curve) throws {
        let identity = try IdentityKey.generate(curve: curve)
        let path = folder.file("key")
        try IdentityFile.create(path, holding: identity)

        #expect(folder.mode("key") == 0o600)
        #expect(folder.names == ["key"])
        let pem = try openssl("pkey", "-in", path, "-pubout")
        let body = pem.split(separator: "\n").dropFirst().dropLast().joined()
        let info = try #require(Base64.decode(body, padded: true))
        #expect(Array(info.suffix(curve.keyLength)) == identity.publicKey)
        #expect(Fingerprint(subjectPublicKeyInfo: info) == identity.fingerprint)
        #expect(try IdentityFile.load(path).publicKey == identity.publicKey)
    }

    @Test(
        "a key is loaded, or made if the file is missing; several tasks at once get the same key")
    func loadOrCreate() async throws {
        let path = folder.file("key")
        let fingerprints = try await withThrowingTaskGroup(of: Fingerprint.self) { group in
            for _ in 0..<8 { group.addTask { try IdentityFile.loadOrCreate(path).fingerprint } }
            return try await group.reduce(into: Set<Fingerprint>()) { $0.insert($1) }
        }
        #expect(fingerprints == [try IdentityFile.load(path).fingerprint])
        #expect(folder.names == ["key"] && folder.mode("key") == 0o600)
        let bad = folder.write("bad", Array("no key".utf8))
        #expect(throws: ChannelError(.badKey, "")) { try IdentityFile.loadOrCreate(bad) }
        #expect(folder.read("bad") == Array("no key".utf8))
    }

    @Test("a protected key is PBES2 with scrypt and AES-256, and openssl pkey reads it")
    func protectedReadByOpenSSL() throws {
        let identity = try IdentityKey.generate()
        let path = folder.file("key")
        try IdentityFile.create(path, holding: identity, passphrase: secret("correct horse"))

        let text = String(decoding: try #require(folder.read("key")), as: UTF8.self)
        #expect(text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----"))
        let structure = try openssl("asn1parse", "-in", path)
        #expect(structure.contains("PBES2"))
        #expect(structure.contains(":scrypt"))
        #expect(structure.contains("aes-256-cbc"))
        let plain = try openssl("pkey", "-in", path, "-passin", "pass:correct horse")
        folder.write("plain", plain)
        #expect(try IdentityFile.load(folder.file("plain")).publicKey == identity.publicKey)
        let opened = try IdentityFile.load(path, passphrase: secret("correct horse"))
        #expect(opened.publicKey == identity.publicKey)
    }

    @Test("a key that openssl genpkey makes is read", arguments: ["X25519", "X448"])
    func madeByOpenSSL(_ algorithm: String) throws {
        let pem = try openssl("genpkey", "-algorithm", algorithm)
        let identity = try IdentityFile.load(folder.write("key", pem))
        #expect(identity.publicKey == (try publicKey(of: folder.file("key"))))
        #expect(identity.hash == .sha256)
    }

    @Test(
        "a key that openssl encrypts is read with its passphrase",
        arguments: [
            ["-v2", "aes256"], ["-scrypt"], ["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512"],
            ["-v1", "PBE-SHA1-3DES"],
        ])
    func encryptedByOpenSSL(_ options: [String]) throws {
        let pem = try openssl("genpkey", "-algorithm", "X25519")
        let plain = folder.write("plain", pem)
        let arguments = ["pkcs8", "-topk8", "-in", plain, "-passout", "pass:hunter2"] + options
        let encrypted = try Subprocess.run("openssl", arguments)
        try #require(encrypted.status == 0)
        let path = folder.write("key", encrypted.output)
        let identity = try IdentityFile.load(path, passphrase: secret("hunter2"))
        #expect(identity.publicKey == (try publicKey(of: plain)))
    }

    @Test("openssl genpkey -aes256 makes a key that is read with its passphrase")
    func generatedEncrypted() throws {
        let pem = try openssl("genpkey", "-algorithm", "X25519", "-aes256", "-pass", "pass:hunter2")
        let path = folder.write("key", pem)
        #expect(try IdentityFile.load(path, passphrase: secret("hunter2")).publicKey.count == 32)
    }

    @Test(
        "the file stores the hash function that the key is used with",
        arguments: HashAlgorithm.allCases)
    func hash(_ hash: HashAlgorithm) throws {
        let path = folder.file("key")
        try IdentityFile.create(path, holding: try IdentityKey.generate(hash: hash))
        #expect(try IdentityFile.load(path).hash == hash)
        #expect(try openssl("pkey", "-in", path, "-noout") == "")
    }

    @Test(
        "loading a plain key requests no passphrase, and the request for a new key's passphrase states path and purpose"
    )
    func asksOnlyWhenNeeded() throws {
        let identity = try IdentityKey.generate()
        try IdentityFile.create(folder.file("plain"), holding: identity)
        let never = PassphraseSource { _, _ throws(ChannelError) in
            Issue.record("a passphrase was requested for a plain key")
            throw ChannelError(.internal, "")
        }
        _ = try IdentityFile.load(folder.file("plain"), passphrase: never)

        let requestCount = Locked(0)
        let asking = PassphraseSource { [path = folder.file("key")] requestedPath, purpose in
            requestCount.withLock { $0 += 1 }
            #expect(requestedPath == path)
            #expect(purpose == .protecting)
            return SecretBytes(copying: Array("x".utf8).span)
        }
        try IdentityFile.create(folder.file("key"), holding: identity, passphrase: asking)
        #expect(requestCount.withLock { $0 } == 1)
    }

    @Test("`loadOrCreate` reports why an existing file cannot be loaded")
    func loadOrCreateReportsFault() throws {
        let identity = try IdentityKey.generate()
        let path = folder.file("key")
        try IdentityFile.create(path, holding: identity, passphrase: secret("hunter2"))
        let missing = PassphraseSource.file(folder.file("missing"))
        let error = #expect(throws: ChannelError(.noSuchFile, "")) {
            try IdentityFile.loadOrCreate(path, passphrase: missing)
        }
        #expect(error?.reason.contains(folder.file("missing")) == true, "\(error?.reason ?? "")")
        let loaded = try IdentityFile.loadOrCreate(path, passphrase: secret("hunter2"))
        #expect(loaded.publicKey == identity.publicKey)
    }

    @Test("the first line of a passphrase file is the passphrase")
    func passphraseFile() throws {
        let identity = try IdentityKey.generate()
        let path = folder.file("key")
        let passphrase = folder.write("passphrase", "correct horse\r\nbattery staple\n")
        try IdentityFile.create(path, holding: identity, passphrase: .file(passphrase))
        #expect(
            try IdentityFile.load(path, passphrase: secret("correct horse")).publicKey
                == identity.publicKey)
    }

    @Test(
        "of many tasks that create the same file at once, one succeeds, and the others get an error"
    )
    func race() async throws {
        let path = folder.file("key")
        let winners = await withTaskGroup(of: [UInt8]?.self) { group in
            for _ in 0..<16 {
                group.addTask {
                    guard let identity = try? IdentityKey.generate() else { return nil }
                    do throws(ChannelError) {
                        try IdentityFile.create(path, holding: identity)
                        return identity.publicKey
                    } catch {
                        #expect(error.code == .cannotCreate)
                        return nil
                    }
                }
            }
            var winners: [[UInt8]] = []
            for await winner in group { if let winner { winners.append(winner) } }
            return winners
        }
        #expect(winners.count == 1)
        #expect(try IdentityFile.load(path).publicKey == winners.first)
        #expect(folder.names == ["key"])
    }

    /// The raw public key of the private key in a file, computed by openssl.
    private func publicKey(of path: String) throws -> [UInt8] {
        let pem = try openssl("pkey", "-in", path, "-pubout")
        let body = pem.split(separator: "\n").dropFirst().dropLast().joined()
        let info = try #require(Base64.decode(body, padded: true))
        return Array(info.dropFirst(12))  // The first 12 bytes name the algorithm.
    }
}

/// A source that always returns this passphrase.
func secret(_ text: String) -> PassphraseSource {
    PassphraseSource { _, _ in SecretBytes(copying: Array(text.utf8).span) }
}
