import BLESecLocking
import BLESecPrimitives
import Glibc
import Testing

@testable import BLESecChannelCore

/// Peers that do not know the code, or whose digits nobody confirms, and that send whatever they
/// like.
@Suite("Pairing with random peers")
struct PairingGeneratorTests {
    /// The seed of a peer's choices in the first run: 1, unless BLESEC_SEED sets another. Each
    /// later run has the next seed. Keys, codes and valid shares do not depend on the seed.
    static let seed: UInt64 = {
        let seed = unsafe getenv("BLESEC_SEED").flatMap { unsafe UInt64(String(cString: $0)) } ?? 1
        print("PairingGeneratorTests: runs from seed \(seed); BLESEC_SEED=N sets another")
        return seed
    }()

    /// A peer that does not know the code. It sends random bytes, records of its victim, and
    /// well-formed records with random content.
    struct Liar {
        var random: Random
        var victimRecords: [[UInt8]] = []

        mutating func record(expected: PairingStep?) -> [UInt8] {
            let step =
                random.number(0...9) < 7
                ? expected?.rawValue ?? 0 : UInt8(random.number(0...7))
            switch random.number(0...9) {
            case 0: return random.bytes(random.number(0...70))
            case 1: return victimRecords.randomElement(using: &random) ?? []
            case 2: return [step]
            default: break
            }
            let lengths = PairingStep(rawValue: step)?.lengths ?? [random.number(0...70)]
            let length = lengths.randomElement(using: &random) ?? 0
            switch step {
            case PairingStep.begin.rawValue:
                return [step, UInt8(random.number(1...3)), UInt8(random.number(0...4))]
            case PairingStep.share.rawValue:
                let uniform = SecretBytes(randomCount: Ristretto255.uniformLength)
                return [step] + Ristretto255.element(from: uniform).span.array
            default: return [step] + random.bytes(length)
            }
        }
    }

    @Test(
        "a peer that does not know the code, or whose digits nobody confirms, is at most stored as pending, whatever it sends",
        arguments: ["code", "comparison"])
    func liars(way: String) async throws {
        var endings: [String: Int] = [:]
        var runsPastBegin = 0
        for number in 0..<1_500 {
            var liar = Liar(random: Random(seed: Self.seed &+ UInt64(number)))
            let victim = try PairingDevice()
            let peer = try IdentityKey.generate().fingerprint
            let pairing: TrustPolicy.Pairing =
                way == "code"
                ? .code(TrustPolicy.PairingCode()) : .comparison { _ in false }
            // In four of six runs the store already has the peer: as pending, or bound to another
            // name.
            let storeCase = liar.random.number(0...5)
            let transcript = liar.random.bytes(32)
            if storeCase < 3 {
                try victim.store.keepPending(
                    TrustPolicy.PendingPeer(
                        name: storeCase == 0 ? "other" : "peer", key: peer, transcript: transcript,
                        isVerified: storeCase == 0))
            } else if storeCase == 3 {
                try victim.store.bind("other", to: peer)
            }
            let before = victim.names
            let role: ChannelRole = liar.random.number(0...1) == 0 ? .dialer : .acceptor
            let exchange = PairingExchange(
                try PairingRun.rule(pairing, victim, name: "peer"),
                .init(
                    role: role, own: victim.key, peer: peer,
                    handshakeHash: liar.random.bytes(32)))
            var error: ChannelError?
            for _ in 0..<30 where error == nil {
                do throws(ChannelError) {
                    if let question = exchange.question {
                        try exchange.didDecide(await PairingRun.answer(question))
                    } else {
                        try exchange.receive(liar.record(expected: exchange.expectedStep))
                    }
                } catch let thrown {
                    error = thrown
                }
                while let record = exchange.nextRecord() { liar.victimRecords.append(record) }
            }
            #expect(!exchange.isComplete, "seed \(Self.seed) + \(number)")
            #expect(victim.names == before, "seed \(Self.seed) + \(number)")
            // Only the entry that this test has made under another name may be verified.
            #expect(
                victim.pending.allSatisfy { !$0.isVerified || $0.name == "other" },
                "seed \(Self.seed) + \(number)")
            if liar.victimRecords.contains(where: { $0.first != PairingStep.begin.rawValue }) {
                runsPastBegin += 1
            }
            endings[error?.code.rawValue ?? "none", default: 0] += 1
        }
        // The control: many runs go on after `begin`, and many end with a record that is malformed
        // or out of place.
        #expect(runsPastBegin > 50)
        #expect(endings["protocol-violation", default: 0] > 50, "\(endings)")
    }
}
