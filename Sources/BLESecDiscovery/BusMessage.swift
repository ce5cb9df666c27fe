internal import CBLESecSDBus

/// An sd-bus message, read and written without sd-bus's variadic functions.
@safe final class BusMessage: @unchecked Sendable {
    // Sendable because it is used on its bus's loop only.

    enum Kind { case call, reply, error, signal, other }

    /// The greatest nesting depth that the D-Bus specification allows.
    private static let maxDepth = 64

    let pointer: OpaquePointer

    init(owning pointer: OpaquePointer) { unsafe self.pointer = unsafe pointer }

    init(sharing pointer: OpaquePointer) {
        unsafe self.pointer = unsafe blesec_sd_bus_message_ref(pointer) ?? pointer
    }

    deinit { unsafe blesec_sd_bus_message_unref(pointer) }

    // MARK: - The header

    var kind: Kind {
        var kind: UInt8 = 0
        guard unsafe blesec_sd_bus_message_get_type(pointer, &kind) >= 0 else { return .other }
        return switch Int(kind) {
        case Int(SD_BUS_MESSAGE_METHOD_CALL): .call
        case Int(SD_BUS_MESSAGE_METHOD_RETURN): .reply
        case Int(SD_BUS_MESSAGE_METHOD_ERROR): .error
        case Int(SD_BUS_MESSAGE_SIGNAL): .signal
        default: .other
        }
    }

    /// The cookie of the call that this message answers.
    var replyCookie: UInt64? {
        var cookie: UInt64 = 0
        return unsafe blesec_sd_bus_message_get_reply_cookie(pointer, &cookie) >= 0 ? cookie : nil
    }

    var sender: String { unsafe Self.text(blesec_sd_bus_message_get_sender(pointer)) }
    var path: String { unsafe Self.text(blesec_sd_bus_message_get_path(pointer)) }
    var interface: String { unsafe Self.text(blesec_sd_bus_message_get_interface(pointer)) }
    var member: String { unsafe Self.text(blesec_sd_bus_message_get_member(pointer)) }

    var error: BusError {
        guard let error = unsafe blesec_sd_bus_message_get_error(pointer) else {
            return BusError(name: "", text: "an error without a name")
        }
        return unsafe BusError(
            name: Self.text(error.pointee.name), text: Self.text(error.pointee.message))
    }

    private static func text(_ pointer: UnsafePointer<CChar>?) -> String {
        guard let pointer = unsafe pointer else { return "" }
        return unsafe String(cString: pointer)
    }

    // MARK: - Reading

    /// The values of the body, up to the first value that cannot be read.
    func body() -> [BusValue] {
        unsafe blesec_sd_bus_message_rewind(pointer, 1)
        var values: [BusValue] = []
        while let value = readValue(depth: 0) { values.append(value) }
        return values
    }

    private func readValue(depth: Int) -> BusValue? {
        var type: CChar = 0
        var contents: UnsafePointer<CChar>?
        guard unsafe blesec_sd_bus_message_peek_type(pointer, &type, &contents) > 0 else {
            return nil
        }
        let types = unsafe Self.text(contents)
        switch UInt8(bitPattern: type) {
        case UInt8(ascii: "y"): return read(0 as UInt8, type).map { .byte($0) }
        case UInt8(ascii: "b"): return read(0 as Int32, type).map { .bool($0 != 0) }
        case UInt8(ascii: "n"): return read(0 as Int16, type).map { .int16($0) }
        case UInt8(ascii: "q"): return read(0 as UInt16, type).map { .uint16($0) }
        // A file descriptor, h, is read as its number and closed with the message: nothing uses it.
        case UInt8(ascii: "i"), UInt8(ascii: "h"): return read(0 as Int32, type).map { .int32($0) }
        case UInt8(ascii: "u"): return read(0 as UInt32, type).map { .uint32($0) }
        case UInt8(ascii: "x"): return read(0 as Int64, type).map { .int64($0) }
        case UInt8(ascii: "t"): return read(0 as UInt64, type).map { .uint64($0) }
        case UInt8(ascii: "d"): return read(0 as Double, type).map { .double($0) }
        case UInt8(ascii: "s"): return readText(type).map { .string($0) }
        case UInt8(ascii: "o"): return readText(type).map { .path($0) }
        case UInt8(ascii: "g"): return readText(type).map { .signature($0) }
        case UInt8(ascii: "a") where types == "y": return readBytes()
        case let container:
            guard depth < Self.maxDepth, let values = readContainer(type, types, depth: depth + 1)
            else { return nil }
            switch (container, values.count) {
            case (UInt8(ascii: "a"), _): return .array(values, of: types)
            case (UInt8(ascii: "r"), _): return .structure(values)
            case (UInt8(ascii: "e"), 2): return .entry(values[0], values[1])
            case (UInt8(ascii: "v"), 1): return .variant(values[0])
            default: return nil
            }
        }
    }

    /// Reads a value of the D-Bus type `type`. `zero` is any value of the Swift type that fits.
    private func read<Value: BitwiseCopyable>(_ zero: Value, _ type: CChar) -> Value? {
        var value = zero
        let result = unsafe withUnsafeMutableBytes(of: &value) {
            unsafe blesec_sd_bus_message_read_basic(pointer, type, $0.baseAddress)
        }
        return result > 0 ? value : nil
    }

    private func readText(_ type: CChar) -> String? {
        var text: UnsafePointer<CChar>?
        let result = unsafe withUnsafeMutablePointer(to: &text) {
            unsafe blesec_sd_bus_message_read_basic(pointer, type, $0)
        }
        return result > 0 ? unsafe Self.text(text) : nil
    }

    private func readBytes() -> BusValue? {
        var start: UnsafeRawPointer?
        var count = 0
        let type = CChar(UInt8(ascii: "y"))
        guard unsafe blesec_sd_bus_message_read_array(pointer, type, &start, &count) > 0 else {
            return nil
        }
        return unsafe .bytes(Array(UnsafeRawBufferPointer(start: start, count: count)))
    }

    private func readContainer(_ type: CChar, _ types: String, depth: Int) -> [BusValue]? {
        guard unsafe blesec_sd_bus_message_enter_container(pointer, type, types) > 0 else {
            return nil
        }
        var values: [BusValue] = []
        while let value = readValue(depth: depth) { values.append(value) }
        // The exit fails if a part of the container could not be read: then the whole value is
        // invalid.
        guard unsafe blesec_sd_bus_message_exit_container(pointer) > 0 else { return nil }
        return values
    }

    // MARK: - Writing

    func append(_ values: [BusValue]) throws(BusError) { for value in values { try append(value) } }

    private func append(_ value: BusValue) throws(BusError) {
        switch value {
        case .byte(let number): try append(number, "y")
        case .bool(let value): try append(value ? 1 as Int32 : 0, "b")
        case .int16(let number): try append(number, "n")
        case .uint16(let number): try append(number, "q")
        case .int32(let number): try append(number, "i")
        case .uint32(let number): try append(number, "u")
        case .int64(let number): try append(number, "x")
        case .uint64(let number): try append(number, "t")
        case .double(let number): try append(number, "d")
        case .string(let text): try append(text: text, "s")
        case .path(let text): try append(text: text, "o")
        case .signature(let text): try append(text: text, "g")
        case .bytes(let bytes):
            let type = CChar(UInt8(ascii: "y"))
            try check(unsafe blesec_sd_bus_message_append_array(pointer, type, bytes, bytes.count))
        case .array(let elements, let elementType):
            try append(elements, in: "a", of: elementType)
        case .entry(let key, let value):
            try append([key, value], in: "e", of: key.signature + value.signature)
        case .structure(let members):
            try append(members, in: "r", of: members.map(\.signature).joined())
        case .variant(let value): try append([value], in: "v", of: value.signature)
        }
    }

    private func append<Value: BitwiseCopyable>(
        _ value: Value, _ type: Unicode.Scalar
    ) throws(BusError) {
        try check(
            unsafe withUnsafeBytes(of: value) {
                unsafe blesec_sd_bus_message_append_basic(
                    pointer, CChar(type.value), $0.baseAddress)
            })
    }

    private func append(text: String, _ type: Unicode.Scalar) throws(BusError) {
        try check(unsafe blesec_sd_bus_message_append_basic(pointer, CChar(type.value), text))
    }

    private func append(
        _ values: [BusValue], in type: Unicode.Scalar, of contents: String
    ) throws(BusError) {
        try check(unsafe blesec_sd_bus_message_open_container(pointer, CChar(type.value), contents))
        try append(values)
        try check(unsafe blesec_sd_bus_message_close_container(pointer))
    }

    private func check(_ result: Int32) throws(BusError) {
        try BusError.check(result, cannot: "write a message")
    }
}
