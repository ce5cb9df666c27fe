internal import BLESecNoise
internal import BLESecPrimitives
internal import CBLESecBench

/// All calls of primitives in a Noise handshake, on both sides, in order.
///
/// The list follows from Noise §5 and the pattern. It is made without `HandshakeState`, since the
/// bench measures `HandshakeState`.
struct HandshakeCalls {
    /// The number of calls of each kind.
    struct Counts: Sendable, Equatable {
        var keyPairs = 0
        var dhOperations = 0
        var hashes = 0
        var hkdfs = 0
        var seals = 0
        var opens = 0
    }

    private(set) var list: [blesec_bench_call] = []
    private(set) var counts = Counts()

    private let name: ProtocolName
    private let digestLength: Int
    /// Whether ephemeral public keys are also mixed into the chaining key, as in handshakes with
    /// pre-shared keys (Noise §9.2).
    private let mixesEphemerals: Bool
    /// The numbers of ciphertexts sealed and opened so far. Each is also the slot of the next
    /// ciphertext to seal or open.
    private var sealedCount: UInt32 = 0
    private var openedCount: UInt32 = 0

    /// Whether a side has a cipher key, and whether that key was used already.
    private enum KeyState { case none, new, used }

    /// Lists the calls of the handshake `name`, with empty payloads and prologue.
    init(_ name: ProtocolName) {
        self.name = name
        digestLength = name.hash.digestLength
        mixesEphemerals = name.pattern.pskCount > 0
        // One `key` stands for both sides: after each message, their cipher keys are in the same state.
        var key = KeyState.none
        for _ in Role.allCases { begin(&key) }
        for message in name.pattern.messages {
            var readersKey = key
            addCalls(of: message, writes: true, &key)
            addCalls(of: message, writes: false, &readersKey)
        }
        for _ in Role.allCases { split() }
    }

    private mutating func begin(_ key: inout KeyState) {
        let length = name.description.utf8.count
        if length > digestLength { hash(length) }
        mixHash(0)  // The prologue.
        for role in Role.allCases {
            for token in name.pattern.preMessage(of: role) { mixPublicKey(token, &key) }
        }
    }

    /// Adds the calls of one side for one message.
    private mutating func addCalls(
        of message: HandshakePattern.Message, writes: Bool, _ key: inout KeyState
    ) {
        for token in message.tokens {
            switch token {
            case .e:
                if writes { add(BLESEC_BENCH_GENERATE, \.keyPairs) }
                mixPublicKey(.e, &key)
            case .s: cryptAndHash(name.curve.keyLength, writes: writes, &key)
            case .ee, .es, .se, .ss:
                add(BLESEC_BENCH_DH, \.dhOperations)
                hkdf(2, of: name.curve.keyLength, &key)
            case .psk:
                hkdf(3, of: PreSharedKey.length, &key)
                mixHash(digestLength)
            }
        }
        cryptAndHash(0, writes: writes, &key)
    }

    private mutating func split() {
        var key = KeyState.none
        hkdf(2, of: 0, &key)
        hkdf(1, of: 0, &key)  // The master secret of additional symmetric keys.
    }

    private mutating func mixPublicKey(_ token: Token, _ key: inout KeyState) {
        mixHash(name.curve.keyLength)
        if token == .e, mixesEphemerals { hkdf(2, of: name.curve.keyLength, &key) }
    }

    private mutating func cryptAndHash(_ count: Int, writes: Bool, _ key: inout KeyState) {
        let isSealed = key != .none
        if isSealed {
            let isNew = key == .new
            if writes {
                add(BLESEC_BENCH_SEAL, \.seals, count, slot: sealedCount, hasNewKey: isNew)
                sealedCount += 1
            } else {
                add(BLESEC_BENCH_OPEN, \.opens, count, slot: openedCount, hasNewKey: isNew)
                openedCount += 1
            }
            key = .used
        }
        mixHash(count + (isSealed ? AEADAlgorithm.tagLength : 0))
    }

    private mutating func mixHash(_ count: Int) { hash(digestLength + count) }

    private mutating func hash(_ count: Int) { add(BLESEC_BENCH_HASH, \.hashes, count) }

    private mutating func hkdf(_ outputs: Int, of input: Int, _ key: inout KeyState) {
        add(BLESEC_BENCH_HKDF, \.hkdfs, outputs, of: input)
        key = .new
    }

    private mutating func add(
        _ kind: blesec_bench_call_kind, _ counter: WritableKeyPath<Counts, Int>, _ count: Int = 0,
        of input: Int = 0, slot: UInt32 = 0, hasNewKey: Bool = false
    ) {
        list.append(
            blesec_bench_call(
                kind: kind, count: UInt32(count), input: UInt32(input), slot: slot,
                has_new_key: hasNewKey))
        counts[keyPath: counter] += 1
    }
}
