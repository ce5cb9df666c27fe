internal import BLESecChannelCore
internal import Glibc

extension ChannelError {
    /// An error from the operating system, with its number in words behind `what`.
    static func system(_ code: Code, _ what: String, _ number: Int32) -> ChannelError {
        ChannelError(code, "\(what): \(systemText(number))", underlying: .errno(number))
    }

    /// The error of a file that cannot be opened, by the number of the system's error.
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

/// The system's words for one of its error numbers.
func systemText(_ number: Int32) -> String {
    guard let text = unsafe strerror(number) else { return "error \(number)" }
    return unsafe String(cString: text)
}
