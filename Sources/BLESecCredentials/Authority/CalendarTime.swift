internal import Glibc

/// A calendar date and time (UTC), made from seconds since 1970.
struct CalendarTime {
    let year: Int
    private let date: [String]
    private let time: [String]

    init(_ seconds: Int64) {
        var parts = unsafe tm()
        var seconds = time_t(seconds)
        unsafe gmtime_r(&seconds, &parts)
        year = unsafe Int(parts.tm_year) + 1_900
        date = unsafe [
            Self.pad(year, 4), Self.pad(Int(parts.tm_mon) + 1), Self.pad(Int(parts.tm_mday)),
        ]
        time = unsafe [parts.tm_hour, parts.tm_min, parts.tm_sec].map { Self.pad(Int($0)) }
    }

    /// `YYYYMMDDHHMMSSZ`.
    var digits: [UInt8] { Array((date.joined() + time.joined() + "Z").utf8) }
    /// `YYYY-MM-DDTHH:MM:SSZ` (RFC 3339).
    var text: String { date.joined(separator: "-") + "T" + time.joined(separator: ":") + "Z" }

    private static func pad(_ number: Int, _ width: Int = 2) -> String {
        let text = String(number)
        return String(repeating: "0", count: max(0, width - text.count)) + text
    }
}
