import BLESecChannelCore
import BLESecPrimitives

@testable import BLESecNoise

/// A party of a Noise handshake that sends the messages of its pattern and may lie about its keys.
/// Where it lacks a psk, or the key for a DH product, it mixes in random bytes and continues.
///
/// It uses Noise's symmetric and transport states directly, without channels or engines.
final class Impostor {
    /// The keys that the party has. With public keys only it is an attacker; with all keys it is
    /// the honest peer.
    struct Keys {
        /// The static public key that the party presents as its own.
        var shown: [UInt8]
        /// The key pair that the party uses where the private key of `shown` is needed. If the
        /// party claims another party's key, this key pair does not match `shown`.
        var own: DHKeyPair?
        /// The victim's static public key, which is no secret.
        var victim: [UInt8]
        /// The victim's static key pair, if it was stolen.
        var stolen: DHKeyPair?
        /// The pre-shared keys, in the order of the pattern's psk tokens; `nil` if the party has
        /// none.
        var psks: [PreSharedKey]?
    }

    let role: Role
    private let name: ProtocolName
    private let pattern: HandshakePattern
    private let keys: Keys
    private var state: SymmetricState?
    private let ephemeral: DHKeyPair
    private var remoteEphemeral: [UInt8]?
    private var psksUsed = 0
    private(set) var messagesDone = 0
    /// Whether the party has lacked a key, so that its state now differs from the victim's.
    private(set) var hasGuessed = false
    private var transport: TransportState?

    /// Begins a handshake. Before a fallback begins, both parties know the initiator's ephemeral
    /// key: pass it as `ephemeral` for an initiator, and as `remoteEphemeral` for a responder.
    init(
        _ name: ProtocolName, _ role: Role, prologue: [UInt8], keys: Keys,
        ephemeral: DHKeyPair? = nil, remoteEphemeral: [UInt8]? = nil
    ) throws {
        self.role = role
        self.keys = keys
        self.name = name
        pattern = name.pattern
        self.ephemeral = try ephemeral ?? .generate(.x25519)
        self.remoteEphemeral = remoteEphemeral
        var state = SymmetricState(name)
        state.mixHash(prologue)
        for owner in Role.allCases {
            for token in pattern.preMessage(of: owner) {
                let isOwn = owner == role
                switch token {
                case .e:
                    Self.mixEphemeral(
                        isOwn ? self.ephemeral.publicKey : remoteEphemeral ?? [], pattern, &state)
                default: state.mixHash(isOwn ? keys.shown : keys.victim)
                }
            }
        }
        self.state = consume state
    }

    var isFinished: Bool { messagesDone == pattern.messages.count }
    var isMyTurn: Bool { !isFinished && pattern.messages[messagesDone].sender == role }

    /// Writes the party's next message.
    func write() throws -> [UInt8] {
        var message: [UInt8] = []
        for token in pattern.messages[messagesDone].tokens {
            switch token {
            case .e:
                message += ephemeral.publicKey
                mixEphemeral(ephemeral.publicKey)
            case .s: message += try encrypt(keys.shown)
            case .ee, .es, .se, .ss, .psk: try mix(token)
            }
        }
        message += try encrypt([])
        messagesDone += 1
        try splitIfFinished()
        return message
    }

    /// Reads the victim's next message. If a key or payload cannot be decrypted, that is no error:
    /// the party continues with a random key.
    func read(_ message: [UInt8]) throws {
        var rest = message[...]
        func take(_ count: Int) -> [UInt8] {
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }
        for token in pattern.messages[messagesDone].tokens {
            switch token {
            case .e:
                let key = take(32)
                remoteEphemeral = key
                mixEphemeral(key)
            case .s: try decrypt(take(32 + (state?.hasKey == true ? 16 : 0)))
            case .ee, .es, .se, .ss, .psk: try mix(token)
            }
        }
        try decrypt(Array(rest))
        messagesDone += 1
        try splitIfFinished()
    }

    /// A transport message, preceded by its length, and sealed with the keys that the party has
    /// computed. These may differ from the victim's keys.
    func seal(_ plaintext: [UInt8]) throws -> [UInt8] {
        var bytes = plaintext + [UInt8](repeating: 0, count: 16)
        var span = bytes.mutableSpan
        try transport?.encrypt(inPlace: &span, count: plaintext.count)
        return MaliciousNoisePeer.framed(bytes)
    }

    private func splitIfFinished() throws {
        guard isFinished, let state = state.take() else { return }
        let hash = state.handshakeHash
        transport = TransportState(
            state.split(), isFirstWriter: pattern.messages[0].sender == role, role: role,
            isOneWay: false, handshakeHash: hash, remoteStatic: nil)
    }

    private func encrypt(_ plaintext: [UInt8]) throws -> [UInt8] {
        try [UInt8](capacity: plaintext.count + 16) { output throws(NoiseError) in
            try state?.encryptAndHash(plaintext.span, into: &output)
        }
    }

    private func decrypt(_ ciphertext: [UInt8]) throws {
        guard !hasGuessed else {
            state?.mixHash(ciphertext)
            return
        }
        do throws(NoiseError) {
            _ = try [UInt8](capacity: ciphertext.count) { output throws(NoiseError) in
                try state?.decryptAndHash(ciphertext.span, into: &output)
            }
        } catch {
            // The party's key differs from the victim's. From now on the party uses a random key.
            hasGuessed = true
            var guess = SymmetricState(name)
            guess.mixKey(SecretBytes(randomCount: 32).span)
            state = consume guess
        }
    }

    private func mix(_ token: Token) throws {
        guard let kinds = token.dhKeys else {
            let psk = keys.psks?[psksUsed]
            psksUsed += 1
            hasGuessed = hasGuessed || psk == nil
            state?.mixKeyAndHash(try psk ?? PreSharedKey(SecretBytes(randomCount: 32)))
            return
        }
        let ownKind = role == .initiator ? kinds.initiator : kinds.responder
        let remoteKind = role == .initiator ? kinds.responder : kinds.initiator
        let remote = remoteKind == .e ? remoteEphemeral ?? [] : keys.victim
        if let local = ownKind == .e ? ephemeral : keys.own {
            let product = try local.sharedSecret(with: remote)
            state?.mixKey(product.span)
        } else if remoteKind == .s, let stolen = keys.stolen {
            let product = try stolen.sharedSecret(
                with: ownKind == .e ? ephemeral.publicKey : keys.shown)
            state?.mixKey(product.span)
        } else {
            hasGuessed = true
            state?.mixKey(SecretBytes(randomCount: 32).span)
        }
    }

    private func mixEphemeral(_ key: [UInt8]) {
        state?.mixHash(key)
        if pattern.pskCount > 0 { state?.mixKey(key.span) }
    }

    private static func mixEphemeral(
        _ key: [UInt8], _ pattern: HandshakePattern, _ state: inout SymmetricState
    ) {
        state.mixHash(key)
        if pattern.pskCount > 0 { state.mixKey(key.span) }
    }
}
