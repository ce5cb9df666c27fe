/// What a shell offers for an operand or for an option's value.
package enum Completion: Sendable, Hashable {
    case nothing
    case words([String])
    case files
    case folders
    /// The Bluetooth adapters of this machine.
    case adapters
    /// The names of remembered peers.
    case peers
    /// The forms of endpoints, with the names of remembered peers, and files for Unix sockets.
    case endpoints

    /// What to offer for a value or an operand that manual pages call `name`, such as `FILE`.
    init(named name: String) {
        let bare = name.filter { !"[].".contains($0) }
        let words = bare.split(separator: "|").map(String.init)
        self =
            switch bare {
            case "DIR": .folders
            case "PREFIX": .files
            case "HCI": .adapters
            case "OLD": .peers
            case "ENDPOINT", "TARGET": .endpoints
            case _ where words.contains("FILE"): .files
            // Words in lower case are to be typed as they are.
            case _ where bare == bare.lowercased(): .words(words)
            default: .nothing
            }
    }
}
