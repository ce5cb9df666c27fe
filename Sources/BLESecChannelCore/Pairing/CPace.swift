package import BLESecPrimitives

/// One side of CPace, suite CPACE-RISTR255-SHA512, in the setting with an initiator and a responder
/// (draft-irtf-cfrg-cpace-21).
///
/// CPace makes a key of 64 bytes from a short code. An attacker who takes part in a run can check
/// one guess of the code, and learns nothing else. A recorded run shows nothing about the code.
package struct CPace: ~Copyable {
    /// The draft that this type follows.
    package static let draft = "draft-irtf-cfrg-cpace-21"
    /// The length of a share in bytes.
    package static let shareLength = Ristretto255.length
    /// The length of the key, and of a confirmation, in bytes.
    package static let keyLength = 64

    /// The public inputs of a run, which have to be the same on both sides.
    package struct Context: Sendable {
        /// The draft's CI, the channel identifier.
        package let channel: [UInt8]
        /// The draft's sid, the session identifier.
        package let session: [UInt8]
        /// The draft's ADa, the initiator's associated data.
        package let initiator: [UInt8]
        /// The draft's ADb, the responder's associated data.
        package let responder: [UInt8]

        package init(
            channel: [UInt8], session: [UInt8], initiator: [UInt8], responder: [UInt8]
        ) {
            self.channel = channel
            self.session = session
            self.initiator = initiator
            self.responder = responder
        }
    }

    /// This side's public share, 32 bytes.
    package let share: [UInt8]
    private let scalar: SecretBytes
    private let context: Context
    private let isInitiator: Bool

    /// Begins a run with a random scalar; `scalar` is for test vectors only.
    package init(
        code: borrowing SecretBytes, _ context: Context, isInitiator: Bool,
        scalar: consuming SecretBytes? = nil
    ) {
        self.context = context
        self.isInitiator = isInitiator
        let scalar = scalar ?? Ristretto255.randomScalar()
        let generator = Self.generator(
            code: code, channel: context.channel, session: context.session)
        guard let share = Ristretto255.product(of: scalar, and: generator.span) else {
            preconditionFailure("the derived generator is the identity")
        }
        self.share = share.span.array
        self.scalar = scalar
    }

    /// Ends the run with the peer's share, and returns the keys; nil if the share is not an element
    /// of the group, is the identity, or is this side's own.
    package consuming func finish(peerShare: [UInt8]) -> CPaceKeys? {
        guard !constantTimeEqual(peerShare.span, share.span),
            let product = Ristretto255.product(of: scalar, and: peerShare.span)
        else { return nil }
        let initiator = Self.lvCat([
            isInitiator ? share : peerShare, context.initiator,
        ])
        let responder = Self.lvCat([
            isInitiator ? peerShare : share, context.responder,
        ])
        var hash = HashContext(.sha512)
        hash.update(Self.lvCat([Self.domain + Array("_ISK".utf8), context.session]))
        hash.update(Self.encodedLength(product.count))
        hash.update(product.span)
        hash.update(initiator)
        hash.update(responder)
        var key = SecretBytes(count: Self.keyLength)
        hash.finish(into: &key)
        return CPaceKeys(
            key: key, session: context.session, initiator: initiator, responder: responder)
    }

    /// The generator for a code: the element that is derived from the hash of the generator string.
    package static func generator(
        code: borrowing SecretBytes, channel: [UInt8], session: [UInt8]
    ) -> SecretBytes {
        // The padding fills the hash's first block, so that the hashed string has the same length
        // for short codes of different lengths. One byte of the block is the padding's own length.
        let usedLength =
            encodedLength(code.count).count + code.count + encodedLength(domain.count).count
            + domain.count
        let padding = [UInt8](repeating: 0, count: max(0, blockLength - usedLength - 1))
        var hash = HashContext(.sha512)
        hash.update(lvCat([domain]))
        hash.update(encodedLength(code.count))
        hash.update(code.span)
        hash.update(lvCat([padding, channel, session]))
        var digest = SecretBytes(count: Ristretto255.uniformLength)
        hash.finish(into: &digest)
        return Ristretto255.element(from: digest)
    }

    /// The draft's lv_cat: the strings, each preceded by its encoded length.
    static func lvCat(_ strings: [[UInt8]]) -> [UInt8] {
        strings.flatMap { encodedLength($0.count) + $0 }
    }

    /// A length as LEB128: seven bits a byte, the least significant first.
    private static func encodedLength(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var remaining = count
        repeat {
            bytes.append(UInt8(remaining & 0x7F) | (remaining > 0x7F ? 0x80 : 0))
            remaining >>= 7
        } while remaining > 0
        return bytes
    }

    private static let domain = Array("CPaceRistretto255".utf8)
    /// The block length of SHA-512.
    private static let blockLength = 128
}

/// The result of a run of CPace: the key, and each side's confirmation that it has the key.
package struct CPaceKeys: ~Copyable {
    /// The draft's ISK.
    package let key: SecretBytes
    /// The share and the associated data of each side, as one string.
    private let initiator, responder: [UInt8]
    private let confirmationKey: SecretBytes

    fileprivate init(
        key: consuming SecretBytes, session: [UInt8], initiator: [UInt8], responder: [UInt8]
    ) {
        var hash = HashContext(.sha512)
        hash.update(Array("CPaceMac".utf8))
        hash.update(session)
        hash.update(key.span)
        var confirmationKey = SecretBytes(count: CPace.keyLength)
        hash.finish(into: &confirmationKey)
        self.key = key
        self.initiator = initiator
        self.responder = responder
        self.confirmationKey = confirmationKey
    }

    /// The confirmation that the initiator or the responder sends: HMAC-SHA-512 over that side's
    /// share and associated data (the draft, section 10.4).
    package func confirmation(ofInitiator isInitiator: Bool) -> [UInt8] {
        var hash = HashContext(.sha512)
        var mac = [UInt8](repeating: 0, count: CPace.keyLength)
        var span = mac.mutableSpan
        let message = isInitiator ? initiator : responder
        hash.hmac(key: confirmationKey.span, message.span, into: &span)
        return mac
    }
}

extension HashContext {
    /// Writes the digest to a secret of at least the digest's length, and begins a new hash.
    fileprivate mutating func finish(into secret: inout SecretBytes) {
        var span = secret.mutableSpan
        finish(into: &span)
    }
}
