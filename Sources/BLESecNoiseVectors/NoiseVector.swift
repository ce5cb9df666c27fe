internal import BLESecJSON
internal import BLESecNoise

/// A test vector: one run of a protocol with the keys of both sides and every message.
///
/// The private keys in a vector are published, so they are not stored as secrets.
package struct NoiseVector: Sendable, Hashable {
    /// The keys and the prologue of one side: members whose names begin with `init_` or `resp_`.
    package struct Party: Sendable, Hashable {
        package var prologue: [UInt8] = []
        /// `psks`, in the order in which the messages use them.
        package var psks: [[UInt8]] = []
        /// `static`: the private key.
        package var staticKey: [UInt8]?
        /// `ephemeral`: the private key.
        package var ephemeral: [UInt8]?
        /// `remote_static`: the public key of the other side, if it is known before the handshake.
        package var remoteStatic: [UInt8]?
    }

    /// One message, of the handshake or of transport.
    package struct Message: Sendable, Hashable {
        /// The payload that its sender encrypts.
        package var payload: [UInt8]
        /// The bytes that are sent.
        package var ciphertext: [UInt8]
    }

    /// `protocol_name`. It may name a protocol that this module does not implement.
    package var protocolName: String
    /// The pattern of the attempt before a fallback; the attempt's first message is `messages[0]`.
    /// Some implementations write such vectors, with the members `fallback` and `pattern`.
    package var attemptedPattern: String?
    /// The members whose names begin with `init_`.
    package var initiator = Party()
    /// The members whose names begin with `resp_`.
    package var responder = Party()
    /// The member `handshake_hash`; nil if it is missing.
    package var handshakeHash: [UInt8]?
    /// The handshake's messages, then transport messages. The two sides take turns; in a one-way
    /// pattern the initiator sends all of them.
    package var messages: [Message] = []
}

extension NoiseVector {
    /// The side of `role`.
    subscript(role: Role) -> Party {
        get { role == .initiator ? initiator : responder }
        set { if role == .initiator { initiator = newValue } else { responder = newValue } }
    }
}

/// Reads the JSON format that Noise implementations share, including variants that some of them
/// write.
///
/// `name` is read as `protocol_name`, and `init_psk` as the only element of `init_psks`. If both
/// members of such a pair are there, they must not contradict each other. Next to `protocol_name`, a
/// `name` that does not begin with `Noise` is ignored. Unknown members are ignored as well, and
/// `null` counts as a missing member.
extension NoiseVector {
    init(_ json: JSONValue) throws(JSONMisfit) {
        func text(_ value: JSONValue) throws(JSONMisfit) -> String { try value.text() }
        let alias = try json.optional("name", text)
        if let name = try json.optional("protocol_name", text) {
            if let alias, alias.hasPrefix("Noise"), alias != name {
                throw JSONMisfit("contradicts `protocol_name`").within(member: "name")
            }
            protocolName = name
        } else if let alias {
            protocolName = alias
        } else {
            // If both are missing, the error names `protocol_name`.
            protocolName = try json.text("protocol_name")
        }
        let isFallback = try json.optional("fallback") { value throws(JSONMisfit) in
            try value.truth()
        }
        if isFallback == true { attemptedPattern = try json.text("pattern") }
        initiator = try Party(json, "init_")
        responder = try Party(json, "resp_")
        handshakeHash = try json.optionalBytes("handshake_hash")
        messages = try json.list("messages", Message.init)
    }
}

extension NoiseVector.Party {
    /// Reads the members of one side; their names begin with `prefix`.
    fileprivate init(_ json: JSONValue, _ prefix: String) throws(JSONMisfit) {
        prologue = try json.optionalBytes(prefix + "prologue") ?? []
        let listed = try json.optional(prefix + "psks") { value throws(JSONMisfit) in
            try value.items { psk throws(JSONMisfit) in try psk.bytes() }
        }
        let single = try json.optionalBytes(prefix + "psk")
        if let listed, let single, listed != [single] {
            throw JSONMisfit("contradicts `\(prefix)psks`").within(member: prefix + "psk")
        }
        psks = listed ?? single.map { [$0] } ?? []
        staticKey = try json.optionalBytes(prefix + "static")
        ephemeral = try json.optionalBytes(prefix + "ephemeral")
        remoteStatic = try json.optionalBytes(prefix + "remote_static")
    }
}

extension NoiseVector.Message {
    fileprivate init(_ json: JSONValue) throws(JSONMisfit) {
        func bytes(_ value: JSONValue) throws(JSONMisfit) -> [UInt8] { try value.bytes() }
        payload = try json.required("payload", bytes)
        ciphertext = try json.required("ciphertext", bytes)
    }
}

extension JSONValue {
    /// The bytes of a string of hexadecimal digits.
    func bytes() throws(JSONMisfit) -> [UInt8] {
        let text = try text()
        guard text.utf8.count.isMultiple(of: 2) else {
            throw JSONMisfit("an odd number of hexadecimal digits")
        }
        guard let bytes = [UInt8](hex: text) else {
            throw JSONMisfit("a character that is no hexadecimal digit")
        }
        return bytes
    }

    /// The bytes of a member with hexadecimal digits; nil if there is none, or if it is `null`.
    fileprivate func optionalBytes(_ name: String) throws(JSONMisfit) -> [UInt8]? {
        try optional(name) { value throws(JSONMisfit) in try value.bytes() }
    }
}

/// Writes the JSON format that Noise implementations share: compact, one vector per line, the
/// members always in the same order.
extension NoiseVector {
    /// The text before a file's first vector.
    package static let opening = Array("{\"vectors\":[\n".utf8)
    /// The text between two vectors.
    package static let separator = Array(",\n".utf8)
    /// The text after a file's last vector.
    package static let closing = Array("\n]}\n".utf8)

    /// The vector as JSON, without `attemptedPattern` and without a line feed.
    package var text: [UInt8] {
        var members = [(name: "protocol_name", value: JSONValue.string(protocolName))]
        members += initiator.members("init_") + responder.members("resp_")
        if let handshakeHash { members.append(("handshake_hash", .hex(handshakeHash))) }
        members.append(("messages", .array(messages.map(\.json))))
        return Array(JSONWriter.compact(.object(members)).utf8)
    }
}

extension NoiseVector.Party {
    /// The members of one side; their names begin with `prefix`.
    fileprivate func members(_ prefix: String) -> [(name: String, value: JSONValue)] {
        var members = [(name: prefix + "prologue", value: JSONValue.hex(prologue))]
        if !psks.isEmpty { members.append((prefix + "psks", .array(psks.map { .hex($0) }))) }
        if let staticKey { members.append((prefix + "static", .hex(staticKey))) }
        if let ephemeral { members.append((prefix + "ephemeral", .hex(ephemeral))) }
        if let remoteStatic { members.append((prefix + "remote_static", .hex(remoteStatic))) }
        return members
    }
}

extension NoiseVector.Message {
    fileprivate var json: JSONValue {
        .object([("payload", .hex(payload)), ("ciphertext", .hex(ciphertext))])
    }
}

extension JSONValue {
    /// A string of the hexadecimal digits of `bytes`.
    fileprivate static func hex(_ bytes: [UInt8]) -> JSONValue {
        var digits: [UInt8] = []
        digits.reserveCapacity(2 * bytes.count)
        digits.append(hex: bytes)
        return .string(String(decoding: digits, as: UTF8.self))
    }
}
