internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// The list of heard peers on standard output: a table that is redrawn, or a line for each change.
struct PeerList {
    private var table = PeerTable()
    private var generator = SystemRandomNumberGenerator()
    private let isTable: Bool
    private var drawnLines = 0
    /// The payload that was last printed for each candidate.
    private var printed: [Candidate: AdvertisementPayload?] = [:]

    /// The time between two drawings of the table.
    static let redrawInterval = Duration.milliseconds(250)
    private static let maximumRows = 20
    private static let header =
        "ADDRESS                     TAG       PSM   CAPABILITIES         SIGNAL   TIMES  LAST HEARD"

    init(isTable: Bool) { self.isTable = isTable }

    /// Records an advertisement, for the next ``draw(at:)``. Without a table, prints a line if the
    /// advertisement is new or has changed.
    mutating func show(_ sighting: Sighting, at now: MonotonicTime) throws(ChannelError) {
        table.hear(sighting, at: now, using: &generator)
        if !isTable { try print(sighting) }
    }

    private mutating func print(_ sighting: Sighting) throws(ChannelError) {
        let candidate = sighting.candidate
        let payload = sighting.advertisement.payload
        if let known = printed[candidate], known == payload { return }
        // One part of an advertisement may be lost, so the same peer can be heard without a payload.
        if payload == nil,
            printed.contains(where: { $0.key.address == candidate.address && $0.value != nil })
        {
            return
        }
        // The dictionary is limited, since unauthenticated peers can invent any number of
        // candidates.
        if printed.count >= table.capacity { printed = [:] }
        printed[candidate] = .some(payload)
        let signal = sighting.signal.map { "\($0) dBm" } ?? "?"
        try StandardOutput.print(
            line: Self.columns(candidate, payload) + " " + signal,
            or: [
                ("event", .string("peer")),
                ("address", .string(candidate.address.address.description)),
                ("address-type", .string(candidate.address.type.rawValue)),
                ("tag", candidate.tag.map { .string($0.description) } ?? .null),
                ("psm", payload?.psm.map { .number(Int($0.rawValue)) } ?? .null),
                ("capabilities", .array((payload?.capabilityNames ?? []).map { .string($0) })),
                ("signal", sighting.signal.map { .number($0) } ?? .null),
            ])
    }

    private static func columns(_ candidate: Candidate, _ payload: AdvertisementPayload?) -> String
    {
        let capabilities = payload?.capabilityNames.joined(separator: ",") ?? "?"
        return pad(candidate.address.description, 27) + " "
            + pad(candidate.tag?.description ?? "?", 9) + " "
            + pad(payload?.psm?.description ?? "?", 5) + " " + pad(capabilities, 20)
    }

    /// Draws the table with the peers and their ages at `now`.
    mutating func draw(at now: MonotonicTime) throws(ChannelError) {
        guard isTable else { return }
        try StandardOutput.print(drawing(at: now, height: Environment.height))
    }

    /// The text that draws the table over its last drawing, on a terminal of `height` lines. The
    /// text switches the wrapping of lines off meanwhile. So each line of the table takes one line
    /// of a narrow terminal, and the next drawing begins at the same place.
    mutating func drawing(at now: MonotonicTime, height: Int) -> String {
        var lines = [Self.header]
        // One line is for the header, and one is for the cursor below the table.
        let rowCount = min(Self.maximumRows, max(1, height - 2))
        for entry in table.entries.prefix(rowCount) {
            let signal = entry.signal.map { "\($0) dBm" } ?? "?"
            let age = now.duration(since: entry.lastHeard).components.seconds
            lines.append(
                Self.columns(entry.candidate, entry.payload) + " " + Self.pad(signal, 8) + " "
                    + Self.pad("\(entry.timesHeard)", 6) + " \(age) s")
        }
        if table.count == 0 { lines.append("nobody yet") }
        // The text moves the cursor to the first line, prints each line again, and erases what is
        // below.
        let cursorUp = drawnLines > 0 ? "\u{1B}[\(drawnLines)A" : ""
        // Each line is erased before it is printed, and not after: the cursor stays on the last
        // character of a line that is cut off, and this character would be erased too.
        let text = lines.map { "\u{1B}[K" + $0 + "\n" }.joined()
        drawnLines = lines.count
        return "\u{1B}[?7l" + cursorUp + text + "\u{1B}[J\u{1B}[?7h"
    }

    /// The text that erases the drawn table, so that another text can be printed in its place.
    mutating func erasing() -> String {
        guard drawnLines > 0 else { return "" }
        defer { drawnLines = 0 }
        return "\u{1B}[\(drawnLines)A\u{1B}[J"
    }

    private static func pad(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }
}

extension AdvertisementPayload {
    fileprivate var capabilityNames: [String] {
        let all: [(capability: Capabilities, name: String)] = [
            (.l2cap, "l2cap"), (.gattStream, "gatt"), (.noise, "noise"), (.tls, "tls"),
        ]
        return all.filter { capabilities.contains($0.capability) }.map(\.name)
    }
}
