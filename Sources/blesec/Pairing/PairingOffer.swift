internal import BLESec
internal import BLESecJSON
internal import BLESecQRCode
internal import BLESecToolKit
internal import Glibc

/// Shows the code or the invitation that a person carries to the other side.
struct PairingOffer: Sendable {
    private let text: String
    /// The name of the output line: `code` or `uri`.
    private let event: String
    private let picture: QRCode?
    /// The path for the PNG image; nil if none was asked for.
    private let pngPath: String?

    /// Nil for a method of pairing that has neither a code nor an invitation.
    init?(_ method: TrustPolicy.Pairing, png path: String?) {
        switch method {
        case .code(let code):
            (text, event, picture) = (code.digits, "code", nil)
        case .invitation(let invitation):
            (text, event, picture) = (invitation.uri, "uri", try? QRCode(invitation.uri))
        case .comparing: return nil
        }
        pngPath = path
    }

    func show() throws(ChannelError) {
        if let pngPath, let picture {
            try NewFile.create(pngPath, picture.png(scale: 8).span)
        }
        if let picture, !Diagnostics.isJSON, isatty(STDERR_FILENO) == 1 {
            if picture.terminalWidth <= Environment.width {
                let style: QRCode.TerminalStyle =
                    Environment.allowsColours ? .colours : .plainOnDark
                let lines = picture.terminalLines(style).map { $0 + "\n" }.joined()
                StandardError.write(lines)
            } else {
                Diagnostics.note(
                    "the terminal is too narrow for the QR code: it needs "
                        + "\(picture.terminalWidth) columns, or --png FILE", "narrow")
            }
        }
        Diagnostics.note("\(event): \(text)", event, [(event, .string(text))])
    }
}
