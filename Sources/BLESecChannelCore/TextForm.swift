extension Decoder {
    /// Decodes a value from its text form.
    package func readText<Value>(_ parse: (String) throws(ChannelError) -> Value) throws -> Value {
        let container = try singleValueContainer()
        let text = try container.decode(String.self)
        do throws(ChannelError) {
            return try parse(text)
        } catch {
            throw DecodingError.dataCorrupted(
                .init(
                    codingPath: codingPath, debugDescription: error.reason, underlyingError: error))
        }
    }
}

extension Encoder {
    /// Encodes a value in its text form.
    package func writeText(_ value: some CustomStringConvertible) throws {
        var container = singleValueContainer()
        try container.encode(value.description)
    }
}
