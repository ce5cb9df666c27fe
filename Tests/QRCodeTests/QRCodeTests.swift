import BLESecQRCode
import TestSupport
import Testing

/// QR codes, read back by another author's program.
@Suite("QR codes") struct QRCodeTests {
    private let folder = ScratchFolder()

    /// A text like a URI, with `count` bytes.
    private static func text(_ count: Int) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        var state: UInt64 = 2_024
        let rest = (0..<count).map { _ in
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return alphabet[Int(state >> 58)]
        }
        return String(("blesec:pair?s=" + String(rest)).prefix(count))
    }

    /// What zbarimg reads in an image.
    private func read(_ png: [UInt8]) throws -> String {
        let outcome = try Subprocess.run(
            "zbarimg",
            [
                "--raw", "-q", "--nodbus", "-Sdisable", "-Sqrcode.enable",
                folder.write("code.png", png),
            ])
        try #require(outcome.status == 0, "\(outcome.errors)")
        return outcome.text
    }

    @Test("zbarimg reads the text in the image", arguments: [1, 50, 150, 300])
    func image(_ count: Int) throws {
        let text = Self.text(count)
        #expect(try read(QRCode(text).png(scale: 4)) == text + "\n")
    }

    @Test("zbarimg reads the longest text")
    func longest() throws {
        let text = Self.text(QRCode.limit)
        #expect(try read(QRCode(text).png(scale: 4)) == text + "\n")
    }

    @Test(
        "zbarimg reads the code that a terminal shows, in each style",
        arguments: [1, 50, 150, 300],
        [
            (QRCode.TerminalStyle.colours, true), (.colours, false), (.plainOnDark, true),
            (.plainOnLight, false),
        ])
    func terminal(_ count: Int, _ display: (style: QRCode.TerminalStyle, isDark: Bool)) throws {
        let text = Self.text(count)
        let lines = try QRCode(text).terminalLines(display.style)
        let picture = try TerminalPicture(lines, isDark: display.isDark)
        #expect(try read(picture.image.png()) == text + "\n")
    }

    @Test("the lines for a terminal have the width and the height that the code states")
    func room() throws {
        for style in QRCode.TerminalStyle.allCases {
            let code = try QRCode(Self.text(50))
            let lines = code.terminalLines(style)
            #expect(lines.count == code.terminalHeight)
            let picture = try TerminalPicture(lines, isDark: true)
            #expect(Set(picture.widths) == [code.terminalWidth])
        }
    }

    @Test("each side has a quiet zone of four light modules")
    func quietZone() throws {
        let code = try QRCode("A")
        let lines = code.terminalLines(.plainOnLight)
        let middleLines = lines.dropFirst(2).dropLast(2)
        #expect(lines.prefix(2).allSatisfy { $0.allSatisfy { $0 == " " } })
        #expect(lines.suffix(2).allSatisfy { $0.allSatisfy { $0 == " " } })
        #expect(middleLines.allSatisfy { $0.hasPrefix("    ") && $0.hasSuffix("    ") })
        // The code begins with the corner of a finder pattern.
        #expect(middleLines.first?.dropFirst(4).first == "█")
        #expect(code[0, 0] && !code[-1, 0] && !code[0, -1] && !code[code.size, 0])
        #expect(code[0, code.size - 1] && !code[0, code.size])
    }

    @Test("without colours, the drawings for a dark and for a light background are complements")
    func complements() throws {
        let code = try QRCode(Self.text(50))
        let complement: [Character: Character] = [" ": "█", "█": " ", "▀": "▄", "▄": "▀"]
        let dark = code.terminalLines(.plainOnDark)
        let complements = code.terminalLines(.plainOnLight).map { line in
            String(line.compactMap { complement[$0] })
        }
        #expect(dark == complements)
    }

    // ISO/IEC 18004, table 7: the capacities of byte mode with error correction level M. Digits and
    // capitals would need less room in other modes.
    @Test(
        "the code is the smallest with byte mode and level M",
        arguments: [
            (1, 1), (14, 1), (15, 2), (26, 2), (27, 3), (150, 8), (152, 8), (153, 9), (331, 13),
            (2_331, 40),
        ])
    func version(_ count: Int, _ version: Int) throws {
        for character in ["7", "K", "k"] {
            let code = try QRCode(String(repeating: character, count: count))
            #expect(code.size == 17 + 4 * version)
        }
    }

    @Test(
        "each module of an image has the requested width and height in pixels",
        arguments: [1, 2, 7, 64])
    func scale(_ scale: Int) throws {
        let png = try QRCode("A").png(scale: scale)
        // The width and the height are in the first chunk, 32 bits each, big-endian.
        let sides = [16, 20].map { png[$0..<$0 + 4].reduce(0) { $0 << 8 | Int($1) } }
        #expect(sides == [29 * scale, 29 * scale])
    }

    @Test("an empty text has no code")
    func empty() { #expect(throws: QRCodeError.empty) { try QRCode("") } }

    @Test("a text that is too long has no code; the bytes count, not the characters")
    func tooLong() {
        let long = String(repeating: "a", count: QRCode.limit + 1)
        #expect(throws: QRCodeError.tooLong(bytes: 2_332)) { try QRCode(long) }
        let wide = String(repeating: "ä", count: 1_200)
        #expect(throws: QRCodeError.tooLong(bytes: 2_400)) { try QRCode(wide) }
    }
}
