/// Why a text has no QR code.
package enum QRCodeError: Error, Sendable, Equatable {
    /// The text is empty.
    case empty
    /// The text has `bytes` bytes, more than ``QRCode/limit``.
    case tooLong(bytes: Int)
}
