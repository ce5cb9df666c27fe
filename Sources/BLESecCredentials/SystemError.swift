internal import BLESecChannelCore
internal import Glibc

extension ChannelError {
    /// An error from the operating system: `what`, followed by the text of the error number.
    static func system(_ code: Code, _ what: String, _ number: Int32) -> ChannelError {
        ChannelError(code, "\(what): \(systemText(number))", underlying: .errno(number))
    }

    /// The error for a file that cannot be opened, from the system's error number.
    static func cannotOpen(_ path: String, _ number: Int32) -> ChannelError {
        switch number {
        case ENOENT, ENOTDIR:
            ChannelError(.noSuchFile, "\(path): no such file", underlying: .errno(number))
        case EACCES, EPERM:
            .system(.permission, "\(path) cannot be opened", number)
        default:
            .system(.noSuchFile, "\(path) cannot be opened", number)
        }
    }
}

/// The system's text for an error number.
func systemText(_ number: Int32) -> String {
    guard let text = unsafe strerror(number) else { return "error \(number)" }
    return unsafe String(cString: text)
}
