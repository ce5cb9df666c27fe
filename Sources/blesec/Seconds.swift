internal import BLESec
internal import BLESecToolKit

/// A number of seconds on the command line.
enum Seconds {
    /// The longest duration in seconds: a year.
    private static let maximum = 365.0 * 24 * 60 * 60

    /// The value of an option; nil when it was not given.
    static func read(_ arguments: Arguments, _ option: Option) throws(ChannelError) -> Duration? {
        guard let text = arguments.value(option) else { return nil }
        // `Double` also reads hexadecimal, infinity and exponents, which are refused here.
        let isDecimal = text.allSatisfy { "0123456789.".contains($0) }
        guard isDecimal, let seconds = Double(text), seconds > 0, seconds <= maximum else {
            throw arguments.usage(
                "\(option.name) is a number of seconds above 0 and up to \(Int(maximum)), and not "
                    + "`\(text)`")
        }
        return .milliseconds(Int64((seconds * 1000).rounded(.up)))
    }
}
