/// The text form of vectors: compact, one vector per line, the members always in the same order.
extension NoiseVector {
    /// The text before a file's first vector.
    package static let opening = Array("{\"vectors\":[\n".utf8)
    /// The text between two vectors.
    package static let separator = Array(",\n".utf8)
    /// The text after a file's last vector.
    package static let closing = Array("\n]}\n".utf8)

    /// The vector as JSON, in ASCII, without a line feed.
    ///
    /// The name must be a valid protocol name (Noise §8), since no characters in it are escaped.
    package var text: [UInt8] {
        precondition(
            protocolName.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C },
            "not the name of a protocol")
        var text = Array("{\"protocol_name\":\"\(protocolName)\"".utf8)
        initiator.write("init", to: &text)
        responder.write("resp", to: &text)
        if let handshakeHash { text.append(",\"handshake_hash\":", handshakeHash) }
        text += ",\"messages\":[".utf8
        for (index, message) in messages.enumerated() {
            if index > 0 { text.append(UInt8(ascii: ",")) }
            text.append("{\"payload\":", message.payload)
            text.append(",\"ciphertext\":", message.ciphertext)
            text.append(UInt8(ascii: "}"))
        }
        text += "]}".utf8
        return text
    }
}

extension NoiseVector.Party {
    /// Appends the side's members to `text`.
    fileprivate func write(_ side: String, to text: inout [UInt8]) {
        text.append(",\"\(side)_prologue\":", prologue)
        if !psks.isEmpty {
            for (index, psk) in psks.enumerated() {
                text.append(index == 0 ? ",\"\(side)_psks\":[" : ",", psk)
            }
            text.append(UInt8(ascii: "]"))
        }
        if let staticKey { text.append(",\"\(side)_static\":", staticKey) }
        if let ephemeral { text.append(",\"\(side)_ephemeral\":", ephemeral) }
        if let remoteStatic { text.append(",\"\(side)_remote_static\":", remoteStatic) }
    }
}

extension [UInt8] {
    /// Appends `start`, then the hexadecimal digits of `bytes` in quotes.
    fileprivate mutating func append(_ start: String, _ bytes: [UInt8]) {
        self += start.utf8
        append(UInt8(ascii: "\""))
        append(hex: bytes)
        append(UInt8(ascii: "\""))
    }
}
