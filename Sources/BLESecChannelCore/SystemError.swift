internal import Glibc

extension ChannelError {
    /// An error from the operating system: `failure`, followed by the text of the error number.
    package static func system(_ code: Code, _ failure: String, _ number: Int32) -> ChannelError {
        let text = unsafe strerror(number).map { unsafe String(cString: $0) }
        return ChannelError(
            code, "\(failure): \(text ?? "error \(number)")", underlying: .errno(number))
    }

    /// An error with the code `badKey`.
    package static func badKey(_ reason: String) -> ChannelError { ChannelError(.badKey, reason) }
}
