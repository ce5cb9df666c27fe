import Testing

@testable import blesec

/// The lines with the progress of `blesec send` and `blesec receive`.
@Suite struct TransferDisplayTests {
    @Test("a drawing wraps no line, and the terminal wraps lines again after it")
    func wrapping() {
        let drawing = TransferDisplay.drawing(["写真", "total"], over: 2)
        #expect(drawing == "\r\u{1B}[1A\u{1B}[J\u{1B}[?7l写真\ntotal\u{1B}[?7h")
        #expect(TransferDisplay.drawing([], over: 1) == "\r\u{1B}[J")
    }
}
