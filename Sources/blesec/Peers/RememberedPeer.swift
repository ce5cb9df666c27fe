internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// What the tool remembers of a peer under one name.
struct RememberedPeer: Sendable {
    let name: String
    let key: Fingerprint
    /// Whether the name belongs to the key; false if the name is only that of an unfinished pairing.
    let isKnown: Bool
    /// The comments of all lines with the name.
    var comment: String
    /// The last address of the key, as an endpoint, and the type of the address; nil if there is
    /// none.
    let address: (endpoint: String, type: AddressType?)?

    init(_ line: KnownPeersFile.Peer, address: String?) {
        (name, key, comment, isKnown) = (line.name, line.key, line.comment, true)
        self.address = Self.split(address)
    }

    init(_ pending: TrustPolicy.PendingPeer, address: String?) {
        (name, key, comment, isKnown) = (pending.name, pending.key, "", false)
        self.address = Self.split(address)
    }

    /// Splits an address as ``PeerMemory`` records it. An address in another form, which somebody
    /// has written by hand, has no type.
    private static func split(_ address: String?) -> (endpoint: String, type: AddressType?)? {
        address.map { text in
            guard let space = text.lastIndex(of: " "),
                let type = AddressType(rawValue: String(text[text.index(after: space)...]))
            else { return (text, nil) }
            return (String(text[..<space]), type)
        }
    }

    /// The type of the address; nil if the address is not that of a Bluetooth device.
    private var addressType: AddressType? {
        address?.endpoint.hasPrefix("l2cap:") == true ? address?.type : nil
    }

    /// The address as text, with the word `random` after a random Bluetooth address.
    var addressText: String? {
        address.map { $0.type == .random ? "\($0.endpoint) random" : $0.endpoint }
    }

    /// The name as `blesec peers list` prints it, without blanks. A `%`, a blank, and a character
    /// that a terminal does not show are written as `%` and two hexadecimal digits for each byte,
    /// as in ``KnownPeersFile``.
    var listedName: String {
        name.unicodeScalars.map { scalar in
            let isPlain = scalar.isShown && !scalar.properties.isWhitespace && scalar != "%"
            if isPlain { return String(scalar) }
            return String(scalar).utf8.map { byte in
                (byte < 16 ? "%0" : "%") + String(byte, radix: 16, uppercase: true)
            }.joined()
        }.joined()
    }

    /// The members of the peer's JSON object.
    var members: [(String, JSONValue)] {
        [
            ("name", .string(name)), ("fingerprint", .string(key.description)),
            ("address", address.map { .string($0.endpoint) } ?? .null),
            ("address-type", addressType.map { .string($0.rawValue) } ?? .null),
            ("comment", comment.isEmpty ? .null : .string(comment)),
        ]
    }
}
