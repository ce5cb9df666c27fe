/// A typed value in a hello or an answer: u8 type · u8 length · value.
///
/// An extension of an unknown type is ignored, but its bytes are bound into the handshake like all
/// others.
package struct HelloExtension: Sendable, Hashable {
    /// The meaning of the value; 1 is ``ChannelFeatures``.
    package let type: UInt8
    /// At most 255 bytes.
    package let value: [UInt8]

    package init(type: UInt8, value: [UInt8]) {
        precondition(value.count <= 255, "an extension's value is at most 255 bytes")
        self.type = type
        self.value = value
    }

    static func encode(_ extensions: [HelloExtension], into body: inout [UInt8]) {
        for item in extensions {
            body.append(item.type)
            body.append(UInt8(item.value.count))
            body.append(contentsOf: item.value)
        }
    }

    /// Reads the rest of `reader`. A repeated type is an error: no canonical encoding repeats a type.
    static func decode(
        _ reader: inout ByteReader, in frameName: String
    ) throws(ChannelError) -> [HelloExtension] {
        var extensions: [HelloExtension] = []
        while let type = reader.byte() {
            guard let length = reader.byte(), let value = reader.bytes(Int(length)).map(Array.init)
            else { throw NegotiationFrame.malformed(frameName, "an extension runs past the end") }
            guard !extensions.contains(where: { $0.type == type }) else {
                throw NegotiationFrame.malformed(frameName, "an extension comes twice")
            }
            extensions.append(HelloExtension(type: type, value: value))
        }
        return extensions
    }
}
