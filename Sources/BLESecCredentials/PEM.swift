internal import BLESecPrimitives
internal import CBLESecOpenSSL

/// The only block of a PEM file (RFC 7468), and the lines before and after it.
struct PEM: ~Copyable {
    /// Why a text is not a single PEM block.
    enum Fault: Error { case noBlock, severalBlocks, noEnd, headers, notBase64 }

    /// The label between `BEGIN` and the dashes.
    let label: String
    /// The lines before the block, without line ends.
    let preamble: [String]
    /// The lines after the block, without line ends.
    let epilogue: [String]
    let content: SecretBytes

    fileprivate static let begin = "-----BEGIN "
    fileprivate static let end = "-----END "
    fileprivate static let dashes = "-----"

    /// Finds and decodes the block. The content is stored only in memory that is wiped.
    init(_ text: Span<UInt8>) throws(Fault) {
        let block = try Block(text)
        let content = try Self.decode(text.extracting(block.body))
        label = block.label
        preamble = block.preamble
        epilogue = block.epilogue
        self.content = content
    }

    /// The text of a block, in lines of 64 characters, with `preamble` before it.
    static func encode(_ content: Span<UInt8>, label: String, preamble: String) -> SecretBytes {
        let digitCount = (content.count + 2) / 3 * 4
        var base64 = SecretBytes(count: digitCount + 1)  // OpenSSL writes a zero byte at the end.
        unsafe base64.withUnsafeMutableBytes { output in
            unsafe content.withUnsafeBufferPointer { input in
                _ = unsafe EVP_EncodeBlock(
                    output.baseAddress, input.baseAddress, Int32(input.count))
            }
        }
        let head = Array("\(preamble)\(begin)\(label)\(dashes)\n".utf8)
        let tail = Array("\(end)\(label)\(dashes)\n".utf8)
        let lineCount = (digitCount + 63) / 64
        var text = SecretBytes(count: head.count + digitCount + lineCount + tail.count)
        var target = text.mutableSpan
        var position = 0
        func put(_ byte: UInt8, _ target: inout MutableSpan<UInt8>) {
            target[position] = byte
            position += 1
        }
        for byte in head { put(byte, &target) }
        for index in 0..<digitCount {
            put(base64.span[index], &target)
            if index % 64 == 63 || index == digitCount - 1 { put(UInt8(ascii: "\n"), &target) }
        }
        for byte in tail { put(byte, &target) }
        return text
    }

    // OpenSSL's PEM reader is not used, because it decodes through a context on the heap, and does
    // not wipe this context.
    private static func decode(_ text: Span<UInt8>) throws(Fault) -> SecretBytes {
        var digits = SecretBytes(count: text.count)
        var count = 0
        var padding = 0
        for index in text.indices {
            let byte = text[index]
            if " \t\r\n".utf8.contains(byte) { continue }
            if byte == UInt8(ascii: "=") {
                padding += 1
            } else if padding > 0 || !isBase64Digit(byte) {
                throw hasHeaders(text) ? .headers : .notBase64
            }
            var span = digits.mutableSpan
            span[count] = byte
            count += 1
        }
        guard count > 0, count % 4 == 0, padding <= 2 else { throw .notBase64 }
        var content = SecretBytes(count: count / 4 * 3)
        let decodedCount = unsafe content.withUnsafeMutableBytes { output in
            unsafe digits.withUnsafeBytes { input in
                unsafe EVP_DecodeBlock(output.baseAddress, input.baseAddress, Int32(count))
            }
        }
        guard decodedCount == count / 4 * 3 else { throw .notBase64 }
        return SecretBytes(copying: content.span.extracting(..<(Int(decodedCount) - padding)))
    }

    /// Whether the block has `Name: value` headers (RFC 1421); base64 has no colon.
    private static func hasHeaders(_ text: Span<UInt8>) -> Bool {
        text.indices.contains { text[$0] == UInt8(ascii: ":") }
    }

    private static func isBase64Digit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
            true
        default: false
        }
    }
}

/// The block of a PEM file, still in base64, and the lines before and after it.
private struct Block {
    var label = ""
    var preamble: [String] = []
    var epilogue: [String] = []
    /// The bytes between the boundary lines of the block.
    var body = 0..<0

    private enum Place { case before, inside, after }

    init(_ text: Span<UInt8>) throws(PEM.Fault) {
        var place = Place.before
        var start = 0
        while start < text.count {
            let line = Self.line(of: text, at: start)
            start = line.upperBound + 1
            if Self.begins(line, of: text, with: PEM.begin) {
                guard place == .before else { throw .severalBlocks }
                place = .inside
                label = Self.label(in: Self.string(text, line), after: PEM.begin)
                body = min(start, text.count)..<text.count
            } else if Self.begins(line, of: text, with: PEM.end), place == .inside {
                guard Self.label(in: Self.string(text, line), after: PEM.end) == label else {
                    throw .noEnd
                }
                place = .after
                body = body.lowerBound..<line.lowerBound
            } else if place == .before {
                preamble.append(Self.string(text, line))
            } else if place == .after {
                epilogue.append(Self.string(text, line))
            }
        }
        guard place != .before else { throw .noBlock }
        guard place == .after else { throw .noEnd }
    }

    /// The line that begins at `start`, without its line feed.
    private static func line(of text: Span<UInt8>, at start: Int) -> Range<Int> {
        start..<((start..<text.count).first { text[$0] == UInt8(ascii: "\n") } ?? text.count)
    }

    private static func begins(
        _ line: Range<Int>, of text: Span<UInt8>, with boundary: String
    ) -> Bool {
        line.count >= boundary.utf8.count
            && zip(line, boundary.utf8).allSatisfy { index, byte in text[index] == byte }
    }

    /// The text of a line without the blanks at its end. The line has to be a boundary line or
    /// outside the block: such a line contains no secret.
    private static func string(_ text: Span<UInt8>, _ line: Range<Int>) -> String {
        var bytes = line.map { text[$0] }
        while let last = bytes.last, last == 0x0D || last == 0x20 || last == 0x09 {
            bytes.removeLast()
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func label(in line: String, after boundary: String) -> String {
        let name = line.dropFirst(boundary.count)
        return String(name.hasSuffix(PEM.dashes) ? name.dropLast(PEM.dashes.count) : name)
    }
}
