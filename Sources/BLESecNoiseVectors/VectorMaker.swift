package import BLESecNoise
internal import BLESecPrimitives

/// Makes vectors with this implementation, so that other implementations can check them.
///
/// The same seed and names give the same vectors. A vector depends on its index but not on earlier
/// vectors, so several can be made in parallel.
package struct VectorMaker: Sendable {
    private let seed: UInt64
    private let names: [ProtocolName]

    /// Prepares to make vectors from `seed`.
    ///
    /// - Parameters:
    ///   - seed: the source of every key and payload.
    ///   - names: the protocols, which the vectors use in turn. With no names, the vectors go
    ///     through all patterns and combinations of algorithms, with modifiers that depend on the
    ///     seed.
    package init(seed: UInt64, names: [ProtocolName] = []) {
        self.seed = seed
        self.names = names
    }

    /// The vector at `index`, which is 0 or more.
    ///
    /// - Throws: `VectorFailure` if this implementation cannot run the vector.
    package func vector(at index: Int) throws(VectorFailure) -> NoiseVector {
        var seeds = SeededGenerator(seed: seed)
        var generator = SeededGenerator(seed: seeds.next() ^ UInt64(index))
        let name =
            names.isEmpty ? Self.anyName(at: index, &generator) : names[index % names.count]
        var vector = try Self.inputs(name, &generator)
        var ciphertexts: [[UInt8]] = []
        var hash: [UInt8] = []
        try VectorWalk(vector: vector, name: name).walk { step throws(VectorFailure) in
            switch step {
            case .message(_, let message): ciphertexts.append(message)
            case .handshakeHash(let digest): hash = digest
            }
        }
        for (index, ciphertext) in ciphertexts.enumerated() {
            vector.messages[index].ciphertext = ciphertext
        }
        vector.handshakeHash = hash
        return vector
    }

    /// The keys and payloads of a vector for `name`.
    private static func inputs(
        _ name: ProtocolName, _ generator: inout SeededGenerator
    ) throws(VectorFailure) -> NoiseVector {
        let pattern = name.pattern
        var vector = NoiseVector(protocolName: name.description)
        let prologue = generator.bytes(Int.random(in: 0...32, using: &generator))
        let psks = (0..<pattern.pskCount).map { _ in generator.bytes(PreSharedKey.length) }
        for role in Role.allCases {
            vector[role] = NoiseVector.Party(prologue: prologue, psks: psks)
            if pattern.requiresLocalStatic(role) {
                vector[role].staticKey = generator.bytes(name.curve.keyLength)
            }
            if pattern.usesEphemeral(of: role) {
                vector[role].ephemeral = generator.bytes(name.curve.keyLength)
            }
        }
        for role in Role.allCases where pattern.requiresRemoteStatic(role) {
            guard let privateKey = vector[role.peer].staticKey else { continue }
            vector[role].remoteStatic = try VectorFailure.wrapping {
                let key = SecretBytes(copying: privateKey.span)
                return try DHKeyPair(curve: name.curve, privateKey: key).publicKey
            }
        }
        // Four transport messages: two from each side, or all from the initiator of a one-way
        // pattern.
        vector.messages = (0..<pattern.messages.count + 4).map { _ in
            let payload = generator.bytes(Int.random(in: 0...24, using: &generator))
            return NoiseVector.Message(payload: payload, ciphertext: [])
        }
        return vector
    }

    /// The name for the vector at `index`, with random modifiers. Consecutive indices go through
    /// all patterns with one combination of algorithms, and then through all patterns with the next
    /// combination.
    private static func anyName(at index: Int, _ generator: inout SeededGenerator) -> ProtocolName {
        let patterns = HandshakePattern.all
        var pattern = patterns[index % patterns.count]
        var modifiers: [PatternModifier] = []
        if Int.random(in: 0..<3, using: &generator) == 0 { modifiers.append(.fallback) }
        for position in 0...pattern.messages.count
        where Int.random(in: 0..<4, using: &generator) == 0 { modifiers.append(.psk(position)) }
        // Leave out a modifier that the pattern does not allow. Not every pattern has a fallback
        // form. A fallback form has one message less, so the last psk position may not exist.
        for modifier in modifiers { pattern = (try? pattern.applying(modifier)) ?? pattern }
        var combination = index / patterns.count
        // The remainder selects one of `parts`, and the quotient is left for the next call.
        func next<Part>(of parts: [Part]) -> Part {
            defer { combination /= parts.count }
            return parts[combination % parts.count]
        }
        return ProtocolName(
            pattern: pattern, curve: next(of: Curve.allCases),
            aead: next(of: AEADAlgorithm.allCases), hash: next(of: HashAlgorithm.allCases))
    }
}
