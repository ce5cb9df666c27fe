extension Decoder {
    /// Reads a value that is written as text.
    package func readText<Value>(
        _ parse: (String) throws(ChannelError) -> Value
    ) throws -> Value {
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
    /// Writes a value as text.
    package func writeText(_ value: some CustomStringConvertible) throws {
        var container = singleValueContainer()
        try container.encode(value.description)
    }
}
