/// Reads a fuzzer's input as a script of choices, numbers and pieces of bytes. After the input's
/// end every number is 0. A piece that would go beyond the end is cut short.
struct Script {
    private var rest: ArraySlice<UInt8>

    init(_ input: [UInt8]) { rest = input[...] }

    var isOver: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    mutating func flag() -> Bool { byte() & 1 == 1 }

    /// A number from 0 to `bound` - 1; `bound` is at most 256.
    mutating func number(below bound: Int) -> Int { Int(byte()) % bound }

    /// One of the items.
    mutating func choice<Item>(_ items: [Item]) -> Item { items[number(below: items.count)] }

    /// Reads a length of one byte and returns that many bytes, or fewer at the input's end; the
    /// length 255 means all remaining bytes.
    mutating func piece() -> [UInt8] {
        let count = byte()
        return count == 255 ? takeRest() : take(Int(count))
    }

    mutating func take(_ count: Int) -> [UInt8] {
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    mutating func takeRest() -> [UInt8] { take(rest.count) }

    /// `bytes` with one defect: a changed bit, a missing end, a missing beginning, or extra bytes
    /// (none, if the input gives none).
    mutating func damage(_ bytes: [UInt8]) -> [UInt8] {
        var damaged = bytes
        let place = Int(byte()) << 8 | Int(byte())
        switch number(below: 4) {
        case 0 where !bytes.isEmpty: damaged[place % bytes.count] ^= 1 << (place & 7)
        case 1 where !bytes.isEmpty: damaged.removeLast(1 + place % bytes.count)
        case 2 where !bytes.isEmpty: damaged.removeFirst(1 + place % bytes.count)
        default: damaged.insert(contentsOf: piece(), at: place % (bytes.count + 1))
        }
        return damaged
    }
}
