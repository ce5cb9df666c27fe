public import BLESecPrimitives

/// The name of a Noise protocol, such as `Noise_XX_25519_ChaChaPoly_SHA256`; Noise §8.
public struct ProtocolName: Sendable, Hashable, CustomStringConvertible {
    /// The handshake pattern with its modifiers.
    public let pattern: HandshakePattern
    /// The Diffie-Hellman function.
    public let curve: Curve
    /// The cipher.
    public let aead: AEADAlgorithm
    /// The hash function.
    public let hash: HashAlgorithm
    /// The name, exactly as it is hashed into the handshake.
    public let description: String

    /// The longest name that the framework allows, in bytes (Noise §8).
    public static let maximumLength = 255

    /// Makes a name from its parts.
    public init(
        pattern: HandshakePattern, curve: Curve = .x25519, aead: AEADAlgorithm = .chaChaPoly,
        hash: HashAlgorithm = .sha256
    ) {
        self.pattern = pattern
        self.curve = curve
        self.aead = aead
        self.hash = hash
        description = "Noise_\(pattern.name)_\(curve.noiseName)_\(aead.noiseName)_\(hash.noiseName)"
    }

    /// Reads a name.
    ///
    /// - Throws: `ProtocolNameError`, which names the unknown part or the broken rule.
    public init(_ name: String) throws(ProtocolNameError) {
        // Splits the bytes, since splitting a string takes ten times as long, and each channel
        // reads the names that are offered.
        let bytes = Array(name.utf8)
        guard bytes.count <= Self.maximumLength else { throw .tooLong(bytes.count) }
        // The name's bytes are hashed. Two strings that are not ASCII can be equal in Swift and
        // have different bytes.
        guard bytes.allSatisfy({ $0 < 0x80 }) else { throw .notAProtocolName }
        let parts = bytes.split(separator: UInt8(ascii: "_"), omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard parts.count == 5, parts[0] == "Noise" else { throw .notAProtocolName }
        let pattern = try HandshakePattern(parsing: parts[1])
        guard let curve = Curve(noiseName: parts[2]) else { throw .unknownDH(parts[2]) }
        guard let aead = AEADAlgorithm(noiseName: parts[3]) else {
            throw .unknownCipher(parts[3])
        }
        guard let hash = HashAlgorithm(noiseName: parts[4]) else {
            throw .unknownHash(parts[4])
        }
        self.init(pattern: pattern, curve: curve, aead: aead, hash: hash)
    }
}

/// Why a text is not the name of a protocol that this module implements; Noise §8.
public enum ProtocolNameError: Error, Sendable, Hashable {
    /// The name is longer than 255 bytes.
    case tooLong(Int)
    /// The name is not ASCII, or does not consist of `Noise` and four parts, separated by `_`.
    case notAProtocolName
    /// There is no pattern with this name.
    case unknownPattern(String)
    /// There is no modifier with this name.
    case unknownModifier(String)
    /// The pattern or a modifier breaks a rule.
    case invalidPattern(PatternError)
    /// Neither `25519` nor `448`.
    case unknownDH(String)
    /// Neither `ChaChaPoly` nor `AESGCM`.
    case unknownCipher(String)
    /// None of `SHA256`, `SHA512`, `BLAKE2s` and `BLAKE2b`.
    case unknownHash(String)
}

extension ProtocolNameError: CustomStringConvertible {
    /// The error as text.
    public var description: String {
        switch self {
        case .tooLong(let count):
            "a protocol name has at most \(ProtocolName.maximumLength) bytes, not \(count)"
        case .notAProtocolName: "not a protocol name of the form Noise_PATTERN_DH_CIPHER_HASH"
        case .unknownPattern(let part): "unknown pattern '\(part)'"
        case .unknownModifier(let part): "unknown pattern modifier '\(part)'"
        case .invalidPattern(let error): error.description
        case .unknownDH(let part): "unknown DH function '\(part)' (25519 or 448)"
        case .unknownCipher(let part): "unknown cipher '\(part)' (ChaChaPoly or AESGCM)"
        case .unknownHash(let part): "unknown hash '\(part)' (\(HashAlgorithm.noiseNames))"
        }
    }
}

extension HandshakePattern {
    /// Reads the pattern part of a protocol name: a base name, then modifiers separated by `+`.
    init(parsing part: String) throws(ProtocolNameError) {
        // Base names are uppercase letters and digits, modifiers begin with a lowercase letter.
        let letters = UInt8(ascii: "A")...UInt8(ascii: "Z")
        let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
        let base = String(
            decoding: part.utf8.prefix { letters ~= $0 || digits ~= $0 }, as: UTF8.self)
        guard var pattern = HandshakePattern.named(base) else {
            throw .unknownPattern(base.isEmpty ? part : base)
        }
        let rest = part.dropFirst(base.count)
        let names = rest.isEmpty ? [] : rest.split(separator: "+", omittingEmptySubsequences: false)
        for name in names {
            guard let modifier = PatternModifier(name) else { throw .unknownModifier(String(name)) }
            do {
                pattern = try pattern.applying(modifier)
            } catch {
                throw .invalidPattern(error)
            }
        }
        self = pattern
    }
}

extension ProtocolName {
    /// Throws if a key that `role` needs is missing or wrong, or if a key is given that `role` does
    /// not need. One exception: a `localStatic` that the pattern does not use is ignored. `carried`
    /// is the ephemeral key of an earlier handshake, which fallback patterns need.
    func check(
        _ role: Role, localStatic: DHKeyPair?, remoteStatic: [UInt8]?, psks: [PreSharedKey],
        carried: CarriedEphemeral?
    ) throws(NoiseError) {
        if pattern.requiresLocalStatic(role) {
            guard let localStatic else { throw .missingKey(.localStatic) }
            guard localStatic.curve == curve else { throw .wrongKey(.localStatic) }
        }
        if pattern.requiresRemoteStatic(role) {
            guard let remoteStatic else { throw .missingKey(.remoteStatic) }
            guard curve.isCanonical(remoteStatic.span) else { throw .wrongKey(.remoteStatic) }
        } else if remoteStatic != nil {
            // A caller who passes a key expects a check, which this pattern would not make.
            throw .unexpectedKey(.remoteStatic)
        }
        guard psks.count == pattern.pskCount else {
            throw .wrongPSKCount(expected: pattern.pskCount, given: psks.count)
        }
        let needsLocalE = pattern.preMessage(of: role).contains(.e)
        let needsRemoteE = pattern.preMessage(of: role.peer).contains(.e)
        switch carried {
        case .local(let ephemeral):
            guard needsLocalE else { throw .unexpectedKey(.localEphemeral) }
            guard !needsRemoteE else { throw .missingKey(.remoteEphemeral) }
            guard ephemeral.curve == curve else { throw .wrongKey(.localEphemeral) }
        case .remote(let ephemeral):
            guard needsRemoteE else { throw .unexpectedKey(.remoteEphemeral) }
            guard !needsLocalE else { throw .missingKey(.localEphemeral) }
            guard ephemeral.count == curve.keyLength else { throw .wrongKey(.remoteEphemeral) }
        case nil:
            guard !needsLocalE else { throw .missingKey(.localEphemeral) }
            guard !needsRemoteE else { throw .missingKey(.remoteEphemeral) }
        }
    }
}
