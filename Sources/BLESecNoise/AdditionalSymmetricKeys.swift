public import BLESecPrimitives

/// Keys for other layers, bound to the handshake: Noise's extension "additional symmetric keys".
///
/// `ask_master = HKDF(ck, zerolen, info = "ask")`, with HKDF as in RFC 5869, is derived at the end
/// of the handshake. A label's key is `HKDF(ask_master, h ‖ label)`. This key reveals neither
/// another label's key nor the transport keys. A rekey of the transport changes no label's key.
public struct AdditionalSymmetricKeys: ~Copyable, Sendable {
    private let master: SecretBytes
    private let handshakeHash: [UInt8]
    private let algorithm: HashAlgorithm

    init(chainingKey: borrowing SecretBytes, handshakeHash: [UInt8], hash: inout HashContext) {
        algorithm = hash.algorithm
        self.handshakeHash = handshakeHash
        var master = SecretBytes(count: algorithm.digestLength)
        let info: [UInt8] = Array("ask".utf8)
        hash.hkdf(
            salt: chainingKey, inputKeyMaterial: Span(), info: info.span,
            outputCount: master.count, into: &master)
        self.master = master
    }

    /// The key of `label`. Every call with this label and `count`, on both sides, returns the same
    /// key. A shorter key is the beginning of a longer one, so use a label with one `count` only.
    ///
    /// - Parameters:
    ///   - label: the purpose of the key.
    ///   - count: the key's length in bytes, at most 255 times the length of a digest.
    public borrowing func key(label: Span<UInt8>, count: Int = 32) -> SecretBytes {
        var context = HashContext(algorithm)
        let material = [UInt8](capacity: handshakeHash.count + label.count) { output in
            output.append(copying: handshakeHash.span)
            output.append(copying: label)
        }
        var key = SecretBytes(count: count)
        context.hkdf(salt: master, inputKeyMaterial: material.span, outputCount: count, into: &key)
        return key
    }
}
