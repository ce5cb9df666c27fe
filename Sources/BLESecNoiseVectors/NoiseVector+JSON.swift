internal import BLESecJSON

/// The JSON format that Noise implementations share, including variants that some of them write.
///
/// `name` is read as `protocol_name`, and `init_psk` as the only element of `init_psks`. Unknown
/// members are ignored, and `null` counts as a missing member.
extension NoiseVector {
    /// Reads a vector from JSON.
    init(_ json: JSONValue) throws(JSONMisfit) {
        func text(_ value: JSONValue) throws(JSONMisfit) -> String { try value.text() }
        if let name = try json.optional("protocol_name", text) {
            protocolName = name
        } else if let name = try json.optional("name", text) {
            protocolName = name
        } else {
            // If both are missing, the error names `protocol_name`.
            protocolName = try json.required("protocol_name", text)
        }
        let isCompound = try json.optional("fallback") { value throws(JSONMisfit) in
            try value.truth()
        }
        if isCompound == true { attemptedPattern = try json.required("pattern", text) }
        initiator = try Party(json, "init_")
        responder = try Party(json, "resp_")
        handshakeHash = try json.optionalBytes("handshake_hash")
        messages = try json.required("messages") { value throws(JSONMisfit) in
            try value.items { message throws(JSONMisfit) in try Message(message) }
        }
    }
}

extension NoiseVector.Party {
    /// Reads the members of one side; their names begin with `prefix`.
    fileprivate init(_ json: JSONValue, _ prefix: String) throws(JSONMisfit) {
        prologue = try json.optionalBytes(prefix + "prologue") ?? []
        let several = try json.optional(prefix + "psks") { value throws(JSONMisfit) in
            try value.items { psk throws(JSONMisfit) in try psk.bytes() }
        }
        if let several {
            psks = several
        } else if let psk = try json.optionalBytes(prefix + "psk") {
            psks = [psk]
        }
        staticKey = try json.optionalBytes(prefix + "static")
        ephemeral = try json.optionalBytes(prefix + "ephemeral")
        remoteStatic = try json.optionalBytes(prefix + "remote_static")
    }
}

extension NoiseVector.Message {
    /// Reads a message from JSON.
    fileprivate init(_ json: JSONValue) throws(JSONMisfit) {
        func bytes(_ value: JSONValue) throws(JSONMisfit) -> [UInt8] { try value.bytes() }
        payload = try json.required("payload", bytes)
        ciphertext = try json.required("ciphertext", bytes)
    }
}

extension JSONValue {
    /// The bytes of a member with hexadecimal digits; nil if there is none, or if it is `null`.
    fileprivate func optionalBytes(_ name: String) throws(JSONMisfit) -> [UInt8]? {
        try optional(name) { value throws(JSONMisfit) in try value.bytes() }
    }
}
