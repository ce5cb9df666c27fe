internal import CBLESecQRCode

/// A text as a QR code (ISO/IEC 18004), to be shown on a terminal or as an image.
///
/// The code contains the text's UTF-8 bytes in byte mode, with error correction level M, in the
/// smallest version that has room for them. If the text contains a secret, copies of it stay in
/// memory that is neither guarded nor erased.
package struct QRCode: Sendable {
    /// How a terminal shows the code.
    package enum TerminalStyle: Sendable, CaseIterable {
        /// With colours: black on white, whatever the terminal's colours are.
        case colours
        /// Without colours, for a terminal whose background is dark: light modules are drawn.
        case plainOnDark
        /// Without colours, for a terminal whose background is light: dark modules are drawn.
        case plainOnLight
    }

    /// The greatest length of a text in bytes: as many as a code of version 40 can hold.
    package static let limit = 2_331
    /// The width, in modules, of the light area that the standard requires around a code.
    package static let quietZone = 4

    /// The number of modules on each side, without the quiet zone. It is odd.
    package let size: Int
    private let isDark: [Bool]

    /// Makes the code of the text's UTF-8 bytes.
    package init(_ text: String) throws(QRCodeError) {
        let bytes = Array(text.utf8)
        guard !bytes.isEmpty else { throw .empty }
        guard bytes.count <= Self.limit else { throw .tooLong(bytes: bytes.count) }
        // Version 0 selects the smallest version that has room.
        guard
            let code = unsafe QRcode_encodeData(Int32(bytes.count), bytes, 0, QR_ECLEVEL_M)
        else { preconditionFailure("no memory") }
        defer { unsafe QRcode_free(code) }
        size = Int(unsafe code.pointee.width)
        let modules = unsafe UnsafeBufferPointer(start: code.pointee.data, count: size * size)
        // The lowest bit of a byte is 1 for a dark module. The other bits are not needed: they tell
        // which part of the code the module belongs to.
        isDark = unsafe modules.map { $0 & 1 == 1 }
    }

    /// Whether a module is dark. Modules outside of the code are light.
    package subscript(row: Int, column: Int) -> Bool {
        0..<size ~= row && 0..<size ~= column && isDark[row * size + column]
    }

    /// How many columns of a terminal the code takes, with its quiet zone.
    package var terminalWidth: Int { size + 2 * Self.quietZone }

    /// How many lines of a terminal the code takes, with its quiet zone.
    package var terminalHeight: Int { (size + 2 * Self.quietZone + 1) / 2 }

    /// The lines to write to a terminal, without line ends.
    ///
    /// A character shows two modules, one above the other. Each line is ``terminalWidth``
    /// characters wide. With colours, each line sets them at its beginning and resets them at its
    /// end.
    package func terminalLines(_ style: TerminalStyle) -> [String] {
        // Colours 16 and 231 are black and white in every theme; a theme can change 0 to 15.
        let (start, end) =
            style == .colours ? ("\u{1B}[0;38;5;16;48;5;231m", "\u{1B}[0m") : ("", "")
        let drawsDarkModules = style != .plainOnDark
        let columns = -Self.quietZone..<size + Self.quietZone
        return (0..<terminalHeight).map { line in
            let row = 2 * line - Self.quietZone
            let glyphs = columns.map { column -> Character in
                let isUpperDrawn = self[row, column] == drawsDarkModules
                let isLowerDrawn = self[row + 1, column] == drawsDarkModules
                return switch (isUpperDrawn, isLowerDrawn) {
                case (false, false): " "
                case (true, false): "\u{2580}"
                case (false, true): "\u{2584}"
                case (true, true): "\u{2588}"
                }
            }
            return start + String(glyphs) + end
        }
    }

    /// The code and its quiet zone as a PNG image, black on white. Each side of a module has
    /// `scale` pixels, 1 to 64.
    package func png(scale: Int) -> [UInt8] {
        precondition(1...64 ~= scale, "a module has 1 to 64 pixels on each side")
        let side = (size + 2 * Self.quietZone) * scale
        var image = GrayImage(width: side, height: side, shade: 255)
        for row in 0..<size {
            for column in 0..<size where self[row, column] {
                let top = (row + Self.quietZone) * scale
                let left = (column + Self.quietZone) * scale
                image.fill(rows: top..<top + scale, columns: left..<left + scale, shade: 0)
            }
        }
        return image.png()
    }
}
