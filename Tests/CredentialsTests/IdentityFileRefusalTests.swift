import BLESecChannelCore
import BLESecCredentials
import BLESecPrimitives
import TestSupport
import Testing

/// Files that are refused as identities, and paths at which no identity is created.
@Suite struct IdentityFileRefusalTests {
    let folder = ScratchFolder()

    @Test("a key file that others may open is refused", arguments: [0o640, 0o604, 0o620, 0o601])
    func shared(_ mode: UInt32) throws {
        let path = folder.write("key", try validKey(), mode: mode)
        try refuses(path, .badKey, "run `chmod 600 \(path)`")
    }

    @Test("a missing file is an error with the file's name")
    func missing() throws {
        try refuses(folder.file("nothing"), .noSuchFile, "nothing: no such file")
    }

    @Test("a directory, a device file and a FIFO are refused without waiting")
    func irregular() throws {
        try refuses(folder.path, .badKey, "is a directory")
        try refuses("/dev/zero", .badKey, "is not a regular file")
        let fifo = folder.file("fifo")
        try #require(try Subprocess.run("mkfifo", [fifo]).status == 0)
        try refuses(fifo, .badKey, "is not a regular file")
    }

    @Test("a file of more than 64 KiB is refused, even if it contains a valid key")
    func tooLarge() throws {
        let padding = String(repeating: "#\n", count: 32 << 10)
        let path = folder.write("key", padding + (try validKey()))
        try refuses(path, .badKey, "too large for a key")
        // A file of exactly the maximum length is accepted: a key after many empty lines.
        let limit = IdentityFile.maximumLength
        let key = try validKey()
        let fits = String(repeating: "\n", count: limit - key.utf8.count) + key
        #expect(try IdentityFile.load(folder.write("fits", fits)).publicKey.count == 32)
    }

    @Test("an empty file, text and random bytes are refused as not PEM")
    func notPEM() throws {
        try refuses(folder.write("empty", ""), .badKey, "is not a PEM file")
        try refuses(folder.write("text", "AAAA BBBB\n"), .badKey, "is not a PEM file")
        let bytes = (0..<4096).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ 13) }
        try refuses(folder.write("bytes", bytes), .badKey, "is not a PEM file")
    }

    @Test("a public key and a certificate are refused, and the error says what the file holds")
    func publicThings() throws {
        let key = folder.write("key", try validKey())
        let publicKey = folder.write("public", try openssl("pkey", "-in", key, "-pubout"))
        try refuses(publicKey, .badKey, "holds a public key")
        let certificate = try openssl(
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=x"
        )
        try refuses(folder.write("cert", certificate), .badKey, "holds a certificate")
    }

    @Test(
        "a key of another algorithm is refused with the algorithm's name",
        arguments: [
            (["-algorithm", "ED25519"], "ED25519"), (["-algorithm", "ED448"], "ED448"),
            (["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "id-ecPublicKey"),
            (["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], "rsaEncryption"),
        ])
    func wrongAlgorithm(_ options: [String], _ name: String) throws {
        let outcome = try Subprocess.run("openssl", ["genpkey"] + options)
        try refuses(folder.write("key", outcome.output), .badKey, "holds a key for \(name)")
    }

    @Test("a key in an algorithm's traditional form is refused as not PKCS#8")
    func traditional() throws {
        let ec = try openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout")
        try refuses(folder.write("ec", ec), .badKey, "holds EC PRIVATE KEY, not PKCS#8")
    }

    @Test(
        "an encrypted key that asks for too many rounds of key derivation is refused",
        arguments: [
            (["-v2", "aes256", "-iter", "65537"], [0x02, 0x03, 0x01, 0x00, 0x01]),
            (["-v1", "PBE-SHA1-3DES", "-iter", "65537"], [0x02, 0x03, 0x01, 0x00, 0x01]),
            (
                ["-scrypt", "-scrypt_N", "1024", "-scrypt_r", "8", "-scrypt_p", "129"],
                [0x02, 0x02, 0x00, 0x81]
            ),
        ])
    func costly(_ options: [String], _ roundsDER: [UInt8]) throws {
        let plain = folder.write("plain", try validKey())
        let arguments = ["pkcs8", "-topk8", "-in", plain, "-passout", "pass:x", "-outform", "DER"]
        let outcome = try Subprocess.run("openssl", arguments + options)
        try #require(outcome.status == 0, "\(outcome.errors)")
        // `roundsDER` is the DER form of the last number in the options. A larger number replaces
        // it only in the finished file, so that openssl does not run so many rounds.
        var der = outcome.output
        let start = try #require(
            der.indices.first { der[$0...].starts(with: roundsDER) }, "no such number in the file")
        for index in start + 2..<start + roundsDER.count { der[index] = 0xFF }
        der[start + 2] = 0x7F
        let label = "ENCRYPTED PRIVATE KEY-----\n"
        let base64 = Base64.encode(der, padded: true)
        let text = "-----BEGIN \(label)\(base64)\n-----END \(label)"
        let path = folder.write("key", text)
        try refuses(path, .badKey, "asks for more rounds of key derivation", secret("x"))
    }

    @Test("an encrypted key that needs more memory than OpenSSL allows is refused for that reason")
    func memory() throws {
        let plain = folder.write("plain", try validKey())
        let arguments = ["pkcs8", "-topk8", "-in", plain, "-passout", "pass:x", "-outform", "DER"]
        let scrypt = ["-scrypt", "-scrypt_N", "16384", "-scrypt_r", "8", "-scrypt_p", "1"]
        let outcome = try Subprocess.run("openssl", arguments + scrypt)
        try #require(outcome.status == 0, "\(outcome.errors)")
        func write(_ der: [UInt8]) -> String {
            let label = "ENCRYPTED PRIVATE KEY-----\n"
            let base64 = Base64.encode(der, padded: true)
            return folder.write("key", "-----BEGIN \(label)\(base64)\n-----END \(label)")
        }
        var der = outcome.output
        let identity = try IdentityFile.load(write(der), passphrase: secret("x"))
        #expect(identity.publicKey.count == 32)
        // N and r as DER. openssl makes no key with an r of 16, which takes more than 32 MiB.
        let parameters: [UInt8] = [0x02, 0x02, 0x40, 0x00, 0x02, 0x01, 0x08]
        let start = try #require(der.indices.first { der[$0...].starts(with: parameters) })
        der[start + 6] = 16
        try refuses(write(der), .badKey, "needs more than 32 MiB of memory", secret("x"))
    }

    @Test("an encrypted key with a missing, wrong, empty or too long passphrase is refused")
    func passphrases() throws {
        let path = folder.file("key")
        let identity = try IdentityKey.generate()
        try IdentityFile.create(path, holding: identity, passphrase: secret("right"))
        try refuses(path, .badKey, "is encrypted, and no passphrase was given")
        for wrong in ["Right", "right ", "r"] {
            try refuses(path, .badKey, "the passphrase is wrong", secret(wrong))
        }
        try refuses(path, .badKey, "a passphrase has 1 to 1024 bytes", secret(""))
        let long = String(repeating: "x", count: 1_025)
        try refuses(path, .badKey, "a passphrase has 1 to 1024 bytes", secret(long))
    }

    @Test("a passphrase file that is empty, too long, missing or readable by others is refused")
    func passphraseFiles() throws {
        let path = folder.file("key")
        try IdentityFile.create(path, holding: try IdentityKey.generate(), passphrase: secret("x"))
        let empty = folder.write("empty", "\n")
        try refuses(path, .badKey, "\(empty): the first line has to be a passphrase", .file(empty))
        let long = folder.write("long", String(repeating: "x", count: 1_025))
        try refuses(path, .badKey, "\(long): the first line has to be a passphrase", .file(long))
        let none = folder.file("none")
        try refuses(path, .noSuchFile, "\(none): no such file", .file(none))
        let shared = folder.write("shared", "x\n", mode: 0o644)
        try refuses(path, .badKey, "run `chmod 600 \(shared)`", .file(shared))
    }

    @Test("an error in a passphrase file names the passphrase file and not the key file")
    func errorNamesPassphraseFile() throws {
        let path = folder.file("key")
        try IdentityFile.create(path, holding: try IdentityKey.generate(), passphrase: secret("x"))
        for passphraseFile in [
            folder.write("loose", "x\n", mode: 0o644), folder.write("empty", "\n"),
        ] {
            let error = #expect(throws: ChannelError(.badKey, "")) {
                try IdentityFile.load(path, passphrase: .file(passphraseFile))
            }
            #expect(error?.reason.hasPrefix(passphraseFile) == true, "\(error?.reason ?? "")")
            #expect(error?.reason.contains(path) == false)
        }
        // The error for a wrong passphrase names the key file, even if the passphrase file's name
        // begins with the key file's name.
        let error = #expect(throws: ChannelError(.badKey, "")) {
            try IdentityFile.load(path, passphrase: .file(folder.write("key2", "y\n")))
        }
        #expect(error?.reason.hasPrefix("\(path) ") == true, "\(error?.reason ?? "")")
    }

    @Test("a key file with an unknown noise-hash, or with two noise-hash lines, is refused")
    func hashes() throws {
        let key = try validKey()
        try refuses(
            folder.write("unknown", "# noise-hash: SHA3\n" + key), .badKey,
            "names an unknown hash, `SHA3`: noise-hash is SHA256, SHA512, BLAKE2s or BLAKE2b")
        try refuses(
            folder.write("case", "# noise-hash: sha256\n" + key), .badKey, "an unknown hash")
        try refuses(folder.write("none", "# noise-hash\n" + key), .badKey, "an unknown hash, ``")
        let line = "# noise-hash: SHA512\n"
        try refuses(folder.write("two", line + line + key), .badKey, "names its noise-hash twice")
        // Other lines have no effect.
        let path = folder.write("fine", "# mine\nKey:\n" + key + "# noise\n")
        #expect(try IdentityFile.load(path).hash == .sha256)
    }

    @Test("a line about noise-hash that is not read is refused, and the error says what to write")
    func unreadHashes() throws {
        let key = try validKey()
        for line in [
            " # noise-hash: SHA512", "\t# noise-hash: SHA512", "# Noise-Hash: SHA512",
            "#NOISE-HASH: SHA512", "noise-hash: SHA512", "# noise-hash = SHA512",
            "# my noise-hash: SHA512",
        ] {
            let path = folder.write("key", "# mine\n\(line)\n" + key)
            try refuses(path, .badKey, "write `# noise-hash: NAME` in a line before the key")
        }
        for text in [
            "\u{FEFF}# noise-hash: SHA512\n" + key, key + "# noise-hash: SHA512\n",
            key + "# noise-hash: SHA512", key + "\n Noise-Hash\r\n",
        ] {
            try refuses(
                folder.write("key", text), .badKey, "has a line about noise-hash that is not read")
        }
    }

    @Test("the advice to convert a key with openssl says that the comment has to be copied")
    func adviceKeepsHash() throws {
        let key = try validKey()
        let headers = key.replacing("KEY-----\n", with: "KEY-----\nA: b\n\n", maxReplacements: 1)
        try refuses(
            folder.write("key", headers), .badKey,
            "`openssl pkcs8 -topk8`, and copy the comment `# noise-hash: NAME`")
    }

    @Test("a key file that is cut off before the last dashes of its end line is refused")
    func truncated() throws {
        let key = Array(try validKey().utf8)
        // The last six bytes, five dashes and a line feed, follow the label of the end line. A file
        // that lacks only bytes after this label is not tested.
        for length in 0..<(key.count - 6) {
            let path = folder.write("key", Array(key[..<length]))
            #expect(throws: ChannelError(.badKey, "")) { try IdentityFile.load(path) }
        }
    }

    @Test("a key file with one changed character is refused or loads as a key, and never traps")
    func flipped() throws {
        let text = Array(try validKey().utf8)
        let original = try IdentityFile.load(folder.write("key", text)).publicKey
        for index in text.indices {
            var changed = text
            changed[index] ^= 0x05
            let path = folder.write("key", changed)
            do throws(ChannelError) {
                let identity = try IdentityFile.load(path)
                // The public key may be the original: X25519 ignores some bits of the private key
                // (RFC 7748 §5).
                #expect(identity.publicKey.count == original.count)
            } catch {
                #expect(error.code == .badKey)
                #expect(error.reason.hasPrefix(path))
            }
        }
    }

    @Test("a file with two keys, and a key in a PEM block with headers, are refused")
    func severalBlocks() throws {
        let key = try validKey()
        try refuses(folder.write("two", key + key), .badKey, "more than one PEM block")
        let lines = key.split(separator: "\n", omittingEmptySubsequences: false)
        let withHeader = ([lines[0], "Proc-Type: 4,ENCRYPTED", ""] + lines[1...])
            .joined(separator: "\n")
        try refuses(folder.write("headers", withHeader), .badKey, "PEM block with headers")
    }

    @Test(
        "no key is created over an existing file, folder or dangling link, or in a missing folder")
    func creation() throws {
        let identity = try IdentityKey.generate()
        let mine = folder.write("mine", "precious", mode: 0o644)
        try refusesToCreate(mine, identity, "\(mine) exists and is not overwritten")
        #expect(folder.read("mine") == Array("precious".utf8))
        let link = folder.file("link")
        try #require(try Subprocess.run("ln", ["-s", folder.file("x"), link]).status == 0)
        try refusesToCreate(link, identity, "\(link) exists and is not overwritten")
        let lost = folder.file("no/key")
        try refusesToCreate(lost, identity, "\(lost) cannot be created")
        try refusesToCreate(folder.path + "/", identity, "exists and is not overwritten")
        try refusesToCreate("/proc/key", identity, "/proc/key cannot be created")
        #expect(folder.names == ["link", "mine"])
    }

    @Test("no passphrase is requested for a new key if its file already exists")
    func noRequest() throws {
        let path = folder.write("mine", "precious")
        let source = PassphraseSource { _, _ throws(ChannelError) in
            Issue.record("a passphrase was requested")
            throw ChannelError(.internal, "")
        }
        #expect(throws: ChannelError(.cannotCreate, "")) {
            try IdentityFile.create(path, holding: try IdentityKey.generate(), passphrase: source)
        }
    }

    private func validKey() throws -> String { try openssl("genpkey", "-algorithm", "X25519") }

    private func refuses(
        _ path: String, _ code: ChannelError.Code, _ reason: String,
        _ passphrase: PassphraseSource? = nil, at location: SourceLocation = #_sourceLocation
    ) throws {
        let error = #expect(throws: ChannelError.self, sourceLocation: location) {
            try IdentityFile.load(path, passphrase: passphrase)
        }
        #expect(error?.code == code, sourceLocation: location)
        #expect(
            error?.reason.contains(reason) == true, "\(error?.reason ?? "")",
            sourceLocation: location)
    }

    private func refusesToCreate(
        _ path: String, _ identity: IdentityKey, _ reason: String,
        at location: SourceLocation = #_sourceLocation
    ) throws {
        let error = #expect(throws: ChannelError.self, sourceLocation: location) {
            try IdentityFile.create(path, holding: identity)
        }
        #expect(error?.code == .cannotCreate, sourceLocation: location)
        #expect(
            error?.reason.contains(reason) == true, "\(error?.reason ?? "")",
            sourceLocation: location)
    }
}
