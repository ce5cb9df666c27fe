import BLESecQRCode

/// An image of what a terminal shows for lines that are drawn with half blocks.
///
/// A cell has 8 × 16 pixels. The terminal has some empty cells around the lines.
struct TerminalPicture {
    enum Failure: Error {
        /// A character that the picture has no glyph for.
        case glyph(Character)
        /// An escape sequence that is not understood.
        case sequence(String)
        /// A line that leaves the terminal's colours changed.
        case colours
    }

    private static let margin = 3
    private let foreground: UInt8
    private let background: UInt8
    /// The width of each line, in cells.
    private(set) var widths: [Int] = []
    private var cells: [[(upper: UInt8, lower: UInt8)]] = []

    init(_ lines: [String], isDark: Bool) throws {
        (foreground, background) = isDark ? (0xDD, 0x11) : (0x22, 0xEE)
        for line in lines { cells.append(try read(line)) }
        widths = cells.map(\.count)
    }

    private func read(_ line: String) throws -> [(upper: UInt8, lower: UInt8)] {
        var row: [(upper: UInt8, lower: UInt8)] = []
        // The foreground and the background that the terminal uses for the next character.
        var colours = (foreground, background)
        var rest = line[...]
        while let character = rest.popFirst() {
            switch character {
            case "\u{1B}":
                guard rest.popFirst() == "[", let end = rest.firstIndex(of: "m") else {
                    throw Failure.sequence(String(rest))
                }
                colours = try apply(String(rest[..<end]), to: colours)
                rest = rest[rest.index(after: end)...]
            case " ": row.append((colours.1, colours.1))
            case "▀": row.append((colours.0, colours.1))
            case "▄": row.append((colours.1, colours.0))
            case "█": row.append((colours.0, colours.0))
            default: throw Failure.glyph(character)
            }
        }
        guard colours == (foreground, background) else { throw Failure.colours }
        return row
    }

    /// The foreground and background after a sequence "Select Graphic Rendition".
    private func apply(_ sequence: String, to oldColours: (UInt8, UInt8)) throws -> (UInt8, UInt8) {
        let shades: [String: UInt8] = ["16": 0, "231": 255]
        var colours = oldColours
        var numbers = sequence.split(separator: ";", omittingEmptySubsequences: false)
            .map(String.init)[...]
        while let first = numbers.popFirst() {
            if first == "0" {
                colours = (foreground, background)
                continue
            }
            guard numbers.popFirst() == "5", let shade = numbers.popFirst().flatMap({ shades[$0] })
            else { throw Failure.sequence(sequence) }
            switch first {
            case "38": colours.0 = shade
            case "48": colours.1 = shade
            default: throw Failure.sequence(sequence)
            }
        }
        return colours
    }

    var image: GrayImage {
        let (columns, rows) = ((widths.max() ?? 0) + 2 * Self.margin, cells.count + 2 * Self.margin)
        var image = GrayImage(width: columns * 8, height: rows * 16, shade: background)
        for (row, line) in cells.enumerated() {
            for (column, cell) in line.enumerated() {
                let (top, left) = ((row + Self.margin) * 16, (column + Self.margin) * 8)
                image.fill(rows: top..<top + 8, columns: left..<left + 8, shade: cell.upper)
                image.fill(rows: top + 8..<top + 16, columns: left..<left + 8, shade: cell.lower)
            }
        }
        return image
    }
}
