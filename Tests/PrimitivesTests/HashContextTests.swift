import Primitives
import Testing

@Suite struct HashContextTests {
    /// Of "abc": FIPS 180-4 and RFC 7693, appendices A and B.
    static let digests: [HashAlgorithm: String] = [
        .sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        .sha512: """
        ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a
        2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f
        """,
        .blake2s: "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
        .blake2b: """
        ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1
        7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923
        """,
    ]

    /// HMAC with the key "Jefe": RFC 4231 §4.3 for SHA-2; Python's hmac for BLAKE2.
    static let shortKey: [HashAlgorithm: String] = [
        .sha256: "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        .sha512: """
        164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554
        9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737
        """,
        .blake2s: "90b6281e2f3038c9056af0b4a7e763cae6fe5d9eb4386a0ec95237890c104ff0",
        .blake2b: """
        6ff884f8ddc2a6586b3c98a4cd6ebdf14ec10204b6710073eb5865ade37a2643
        b8807c1335d107ecdb9ffeaeb6828c4625ba172c66379efcd222c2de11727ab4
        """,
    ]

    /// HMAC with a key of 131 bytes, more than a block: RFC 4231 §4.7; Python's hmac for BLAKE2.
    static let longKey: [HashAlgorithm: String] = [
        .sha256: "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        .sha512: """
        80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352
        6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598
        """,
        .blake2s: "d23d79394f53d536a096e6514447eeaabb05ded01be32c1937da6a8f7103bc4e",
        .blake2b: """
        a54b2943b2a20227d41ca46c0945af09bc1faefb2f49894c23aebc557fb79c48
        89dca74408dc865086667aedee4a3185c53a49c80b814c4c5813ea0c8b38a8f8
        """,
    ]

    @Test("a digest is the one of its standard, in one piece or many", arguments: digests.keys)
    func digest(_ algorithm: HashAlgorithm) {
        var context = HashContext(algorithm)
        let expected = hex(Self.digests[algorithm, default: ""])
        context.update(Array("abc".utf8))
        #expect(context.finished() == expected)
        for byte in "abc".utf8 { context.update([byte]) }
        #expect(context.finished() == expected)
        #expect(expected.count == algorithm.digestLength)
    }

    @Test(
        "HMAC is the one of RFC 2104, with keys shorter and longer than a block",
        arguments: HashAlgorithm.allCases)
    func hmac(_ algorithm: HashAlgorithm) {
        var context = HashContext(algorithm)
        let short = context.mac(Array("Jefe".utf8), "what do ya want ", "for nothing?")
        #expect(short == hex(Self.shortKey[algorithm, default: ""]))
        let long = context.mac(
            [UInt8](repeating: 0xAA, count: 131),
            "Test Using Larger Than Block-Size Key - Hash Key First", "")
        #expect(long == hex(Self.longKey[algorithm, default: ""]))
    }

    @Test("HKDF gives the output of RFC 5869, appendix A.1")
    func hkdf() {
        let output = derive(
            salt: hex("000102030405060708090a0b0c"), [UInt8](repeating: 0x0B, count: 22),
            info: hex("f0f1f2f3f4f5f6f7f8f9"), count: 42)
        #expect(
            output
                == hex(
                    """
                    3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf
                    34007208d5b887185865
                    """))
    }

    @Test("HKDF gives the output of RFC 5869, appendix A.2, over several blocks")
    func longHKDF() {
        let output = derive(
            salt: [UInt8](0x60...0xAF), [UInt8](0x00...0x4F), info: [UInt8](0xB0...0xFF),
            count: 82)
        #expect(
            output
                == hex(
                    """
                    b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c
                    59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71
                    cc30c58179ec3e87c14c01d5c1f3434f1d87
                    """))
    }

    @Test("HKDF gives the output of RFC 5869, appendix A.3, without salt and info")
    func plainHKDF() {
        let output = derive(
            salt: [], [UInt8](repeating: 0x0B, count: 22), info: [], count: 42)
        #expect(
            output
                == hex(
                    """
                    8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d
                    9d201395faa4b61a96c8
                    """))
    }

    @Test("SHA-256 over pieces is SHA-256 over their concatenation")
    func pieces() {
        #expect(sha256([97], [], [98, 99]) == hex(Self.digests[.sha256, default: ""]))
        #expect(sha256([97, 98, 99].span) == sha256([97, 98, 99]))
    }

    private func derive(
        salt: [UInt8], _ material: [UInt8], info: [UInt8], count: Int
    ) -> [UInt8] {
        var context = HashContext(.sha256)
        var output = [UInt8](repeating: 0, count: count)
        var span = output.mutableSpan
        context.hkdf(
            salt: salt.span, inputKeyMaterial: material.span, info: info.span, into: &span)
        return output
    }
}

extension HashContext {
    fileprivate mutating func mac(
        _ key: [UInt8], _ first: String, _ second: String
    ) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: algorithm.digestLength)
        var span = output.mutableSpan
        let (first, second) = (Array(first.utf8), Array(second.utf8))
        hmac(key: key.span, first.span, second.span, into: &span)
        return output
    }
}
