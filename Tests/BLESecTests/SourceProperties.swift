import BLESecNoise

/// A pattern, and what the specification says about each of its payloads: the tables of Noise §7.7
/// (one-way and interactive patterns) and §18.2 (deferred patterns), in revision 34, copied and not
/// computed.
///
/// Each payload has a direction, a source property and a destination property. The payloads after
/// the bar are transport payloads. The tables list a transport payload only if its properties differ
/// from those of its sender's last handshake payload. The printed tables have two mistakes, which are
/// corrected here. For NX1 they have the transport payloads `-> 2 1` and `<- 0 5`; the arrows must
/// be interchanged, because the initiator has no key to prove. For X1N they leave out the last
/// transport payload.
struct SourceProperties {
    private static let tables = """
        N     -> 0 2 |
        K     -> 1 2 |
        X     -> 1 2 |
        NN    -> 0 0  <- 0 1 | -> 0 1
        NK    -> 0 2  <- 2 1 | -> 0 5
        NX    -> 0 0  <- 2 1 | -> 0 5
        XN    -> 0 0  <- 0 1  -> 2 1 | <- 0 5
        XK    -> 0 2  <- 2 1  -> 2 5 | <- 2 5
        XX    -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        KN    -> 0 0  <- 0 3 | -> 2 1  <- 0 5
        KK    -> 1 2  <- 2 4 | -> 2 5  <- 2 5
        KX    -> 0 0  <- 2 3 | -> 2 5  <- 2 5
        IN    -> 0 0  <- 0 3 | -> 2 1  <- 0 5
        IK    -> 1 2  <- 2 4 | -> 2 5  <- 2 5
        IX    -> 0 0  <- 2 3 | -> 2 5  <- 2 5
        NK1   -> 0 0  <- 2 1 | -> 0 5
        NX1   -> 0 0  <- 0 1  -> 0 3 | <- 2 1  -> 0 5
        X1N   -> 0 0  <- 0 1  -> 0 1  <- 0 3 | -> 2 1  <- 0 5
        X1K   -> 0 2  <- 2 1  -> 0 5  <- 2 3 | -> 2 5  <- 2 5
        XK1   -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        X1K1  -> 0 0  <- 2 1  -> 0 5  <- 2 3 | -> 2 5  <- 2 5
        X1X   -> 0 0  <- 2 1  -> 0 5  <- 2 3 | -> 2 5  <- 2 5
        XX1   -> 0 0  <- 0 1  -> 2 3 | <- 2 5  -> 2 5
        X1X1  -> 0 0  <- 0 1  -> 0 3  <- 2 3 | -> 2 5  <- 2 5
        K1N   -> 0 0  <- 0 1  -> 2 1 | <- 0 5
        K1K   -> 0 2  <- 2 1  -> 2 5 | <- 2 5
        KK1   -> 0 0  <- 2 3 | -> 2 5  <- 2 5
        K1K1  -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        K1X   -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        KX1   -> 0 0  <- 0 3  -> 2 3 | <- 2 5  -> 2 5
        K1X1  -> 0 0  <- 0 1  -> 2 3 | <- 2 5  -> 2 5
        I1N   -> 0 0  <- 0 1  -> 2 1 | <- 0 5
        I1K   -> 0 2  <- 2 1  -> 2 5 | <- 2 5
        IK1   -> 0 0  <- 2 3 | -> 2 5  <- 2 5
        I1K1  -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        I1X   -> 0 0  <- 2 1  -> 2 5 | <- 2 5
        IX1   -> 0 0  <- 0 3  -> 2 3 | <- 2 5  -> 2 5
        I1X1  -> 0 0  <- 0 1  -> 2 3 | <- 2 5  -> 2 5
        """

    /// One payload of a pattern: an arrow and two numbers in the tables.
    struct Payload {
        let sender: Role
        let source: Int
        let destination: Int
        let isHandshake: Bool
    }

    /// Every pattern of the tables.
    static let all = tables.split(separator: "\n").map { SourceProperties(line: $0) }

    /// The pattern's name, without modifiers.
    let name: String
    let payloads: [Payload]
    /// The numbers of the psk modifiers; see ``withPSKs(_:)``.
    private(set) var psks: [Int] = []

    private init(line: Substring) {
        let words = line.split(separator: " ")
        name = String(words[0])
        var payloads: [Payload] = []
        var isHandshake = true
        var index = 1
        while index < words.count {
            if words[index] == "|" {
                isHandshake = false
                index += 1
                continue
            }
            payloads.append(
                Payload(
                    sender: words[index] == "->" ? .initiator : .responder,
                    source: Int(words[index + 1]) ?? -1, destination: Int(words[index + 2]) ?? -1,
                    isHandshake: isHandshake))
            index += 3
        }
        self.payloads = payloads
    }

    private init(name: String, payloads: [Payload], psks: [Int]) {
        self.name = name
        self.payloads = payloads
        self.psks = psks
    }

    /// The pattern with this name.
    static func named(_ name: String) -> SourceProperties? { all.first { $0.name == name } }

    var handshake: [Payload] { payloads.filter(\.isHandshake) }

    /// Whether only the initiator sends; Noise §7.4.
    var isOneWay: Bool { payloads.allSatisfy { $0.sender == .initiator } }

    /// The pattern with psk modifiers. The properties stay the same: Noise §9 has no tables of its
    /// own.
    func withPSKs(_ psks: [Int]) -> SourceProperties {
        SourceProperties(name: name, payloads: payloads, psks: psks)
    }

    /// The pattern as a fallback (Noise §10.2): without its first message, which was sent in the
    /// handshake before the fallback.
    var fallback: SourceProperties {
        SourceProperties(name: name, payloads: Array(payloads.dropFirst()), psks: psks)
    }

    /// The name of a protocol with this pattern and its modifiers.
    var protocolName: String {
        let modifiers = psks.map { "psk\($0)" }.joined(separator: "+")
        return "Noise_\(name)\(modifiers)_25519_ChaChaPoly_SHA256"
    }

    /// Whether `role` has a static key and proves it: a payload of `role` has source property 2. In
    /// K and X the initiator has a key, but only source property 1.
    func provesKey(_ role: Role) -> Bool {
        payloads.contains { $0.sender == role && $0.source == 2 }
    }

    /// Whether the other party has proof of the identity of `role` after the first `count` messages
    /// of the handshake. Always true if there is no psk and `role` proves no key
    /// (``provesKey(_:)``), since `role` then has nothing to prove.
    ///
    /// A payload with source property 2 proves a key. A psk is mixed in at the beginning of the
    /// first message (psk0) or at the end of message N (pskN). A party's ephemeral key is mixed in
    /// by its first message (§9.2). So a payload of `role` proves the psks if both are true:
    ///
    /// - The last psk is mixed in by the payload's message or an earlier one.
    /// - The other party's first message is earlier: then the payload depends on the other party's
    ///   ephemeral key, and is no replay.
    func isProven(_ role: Role, after count: Int) -> Bool {
        guard provesKey(role) || !psks.isEmpty else { return true }
        let lastPSKIndex = psks.map { max(0, $0 - 1) }.max() ?? 0
        let otherPartysFirstIndex = handshake.firstIndex { $0.sender != role } ?? .max
        return handshake.enumerated().prefix(count).contains { index, payload in
            payload.sender == role && (payload.source == 2 || !provesKey(role))
                && (psks.isEmpty || index >= lastPSKIndex && index > otherPartysFirstIndex)
        }
    }
}
