/// The JSON shape that Noise implementations share, with what some of them write differently.
///
/// `name` stands for `protocol_name`, and `init_psk` for an only `init_psks`. Members without a
/// meaning here are passed over.
extension NoiseVector: Decodable {
    private enum Member: String, CodingKey {
        case protocol_name, name, fallback, pattern
        case init_prologue, init_psks, init_psk, init_static, init_ephemeral, init_remote_static
        case resp_prologue, resp_psks, resp_psk, resp_static, resp_ephemeral, resp_remote_static
        case handshake_hash, messages
    }

    /// Reads a vector; an error's coding path says where it stands.
    package init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Member.self)
        func bytes(_ member: Member) throws -> [UInt8]? {
            try members.decodeIfPresent(HexBytes.self, forKey: member)?.bytes
        }
        func psks(_ several: Member, _ one: Member) throws -> [[UInt8]] {
            if let psks = try members.decodeIfPresent([HexBytes].self, forKey: several) {
                return psks.map(\.bytes)
            }
            return try bytes(one).map { [$0] } ?? []
        }
        protocolName =
            try members.decodeIfPresent(String.self, forKey: .protocol_name)
            ?? members.decodeIfPresent(String.self, forKey: .name)
            // Throws: neither is there, and it is the first that should be.
            ?? members.decode(String.self, forKey: .protocol_name)
        if try members.decodeIfPresent(Bool.self, forKey: .fallback) == true {
            attemptedPattern = try members.decode(String.self, forKey: .pattern)
        }
        initiator = Party(
            prologue: try bytes(.init_prologue) ?? [], psks: try psks(.init_psks, .init_psk),
            staticKey: try bytes(.init_static), ephemeral: try bytes(.init_ephemeral),
            remoteStatic: try bytes(.init_remote_static))
        responder = Party(
            prologue: try bytes(.resp_prologue) ?? [], psks: try psks(.resp_psks, .resp_psk),
            staticKey: try bytes(.resp_static), ephemeral: try bytes(.resp_ephemeral),
            remoteStatic: try bytes(.resp_remote_static))
        handshakeHash = try bytes(.handshake_hash)
        messages = try members.decode([Message].self, forKey: .messages)
    }
}

extension NoiseVector.Message: Decodable {
    private enum Member: String, CodingKey { case payload, ciphertext }

    /// Reads a message.
    package init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Member.self)
        payload = try members.decode(HexBytes.self, forKey: .payload).bytes
        ciphertext = try members.decode(HexBytes.self, forKey: .ciphertext).bytes
    }
}
