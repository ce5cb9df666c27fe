/// A D-Bus value (D-Bus specification, "Type System").
indirect enum BusValue: Sendable, Hashable {
    case byte(UInt8)
    case bool(Bool)
    case int16(Int16)
    case uint16(UInt16)
    case int32(Int32)
    case uint32(UInt32)
    case int64(Int64)
    case uint64(UInt64)
    case double(Double)
    case string(String)
    case path(String)
    case signature(String)
    /// An array of bytes, `ay`.
    case bytes([UInt8])
    /// Any other array, with the signature of its elements.
    case array([BusValue], of: String)
    case entry(BusValue, BusValue)
    case structure([BusValue])
    case variant(BusValue)

    /// The D-Bus signature of the value's type.
    var signature: String {
        switch self {
        case .byte: "y"
        case .bool: "b"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .string: "s"
        case .path: "o"
        case .signature: "g"
        case .bytes: "ay"
        case .array(_, let element): "a" + element
        case .entry(let key, let value): "{\(key.signature)\(value.signature)}"
        case .structure(let members): "(" + members.map(\.signature).joined() + ")"
        case .variant: "v"
        }
    }

    /// `a{sv}`, the type of an interface's properties and of a method's options.
    static func properties(_ properties: [String: BusValue]) -> BusValue {
        .array(properties.map { .entry(.string($0), .variant($1)) }, of: "{sv}")
    }

    static func strings(_ strings: [String]) -> BusValue {
        .array(strings.map { .string($0) }, of: "s")
    }
}

/// Access by type: each property unwraps variants, and is nil for a value of another type.
extension BusValue {
    var unwrapped: BusValue { if case .variant(let value) = self { value.unwrapped } else { self } }
    var bool: Bool? { if case .bool(let value) = unwrapped { value } else { nil } }
    var bytes: [UInt8]? { if case .bytes(let bytes) = unwrapped { bytes } else { nil } }
    var elements: [BusValue]? { if case .array(let values, _) = unwrapped { values } else { nil } }
    var texts: [String]? { elements?.compactMap(\.text) }

    /// The value of any integer type.
    var integer: Int? {
        switch unwrapped {
        case .byte(let value): Int(value)
        case .int16(let value): Int(value)
        case .uint16(let value): Int(value)
        case .int32(let value): Int(value)
        case .uint32(let value): Int(value)
        case .int64(let value): Int(value)
        case .uint64(let value): Int(exactly: value)
        default: nil
        }
    }

    /// The value of a string or an object path.
    var text: String? {
        switch unwrapped {
        case .string(let text), .path(let text): text
        default: nil
        }
    }

    /// The entries of a dictionary, in order, with every entry of a repeated key.
    var entries: [(key: BusValue, value: BusValue)]? {
        elements?.compactMap {
            if case .entry(let key, let value) = $0 { (key, value) } else { nil }
        }
    }

    /// The entries of a dictionary whose keys are strings or paths.
    var properties: [String: BusValue]? {
        entries?.reduce(into: [:]) { properties, entry in
            if let name = entry.key.text { properties[name] = entry.value.unwrapped }
        }
    }
}
