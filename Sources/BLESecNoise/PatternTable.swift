/// The patterns of Noise §7.4 (one-way), §7.5 (interactive, also called fundamental) and §18.1
/// (deferred).
///
/// A row has the pattern's name, the initiator's pre-message, the responder's pre-message, and then
/// the messages. The initiator sends the first message.
extension HandshakePattern {
    /// Every one-way, interactive and deferred pattern, in the specification's order.
    public static let all: [HandshakePattern] = [
        // One-way.
        row("N", [], [.s], [.e, .es]),
        row("K", [.s], [.s], [.e, .es, .ss]),
        row("X", [], [.s], [.e, .es, .s, .ss]),
        // Interactive.
        row("NN", [], [], [.e], [.e, .ee]),
        row("NK", [], [.s], [.e, .es], [.e, .ee]),
        row("NX", [], [], [.e], [.e, .ee, .s, .es]),
        row("XN", [], [], [.e], [.e, .ee], [.s, .se]),
        row("XK", [], [.s], [.e, .es], [.e, .ee], [.s, .se]),
        row("XX", [], [], [.e], [.e, .ee, .s, .es], [.s, .se]),
        row("KN", [.s], [], [.e], [.e, .ee, .se]),
        row("KK", [.s], [.s], [.e, .es, .ss], [.e, .ee, .se]),
        row("KX", [.s], [], [.e], [.e, .ee, .se, .s, .es]),
        row("IN", [], [], [.e, .s], [.e, .ee, .se]),
        row("IK", [], [.s], [.e, .es, .s, .ss], [.e, .ee, .se]),
        row("IX", [], [], [.e, .s], [.e, .ee, .se, .s, .es]),
        // Deferred.
        row("NK1", [], [.s], [.e], [.e, .ee, .es]),
        row("NX1", [], [], [.e], [.e, .ee, .s], [.es]),
        row("X1N", [], [], [.e], [.e, .ee], [.s], [.se]),
        row("X1K", [], [.s], [.e, .es], [.e, .ee], [.s], [.se]),
        row("XK1", [], [.s], [.e], [.e, .ee, .es], [.s, .se]),
        row("X1K1", [], [.s], [.e], [.e, .ee, .es], [.s], [.se]),
        row("X1X", [], [], [.e], [.e, .ee, .s, .es], [.s], [.se]),
        row("XX1", [], [], [.e], [.e, .ee, .s], [.es, .s, .se]),
        row("X1X1", [], [], [.e], [.e, .ee, .s], [.es, .s], [.se]),
        row("K1N", [.s], [], [.e], [.e, .ee], [.se]),
        row("K1K", [.s], [.s], [.e, .es], [.e, .ee], [.se]),
        row("KK1", [.s], [.s], [.e], [.e, .ee, .se, .es]),
        row("K1K1", [.s], [.s], [.e], [.e, .ee, .es], [.se]),
        row("K1X", [.s], [], [.e], [.e, .ee, .s, .es], [.se]),
        row("KX1", [.s], [], [.e], [.e, .ee, .se, .s], [.es]),
        row("K1X1", [.s], [], [.e], [.e, .ee, .s], [.se, .es]),
        row("I1N", [], [], [.e, .s], [.e, .ee], [.se]),
        row("I1K", [], [.s], [.e, .es, .s], [.e, .ee], [.se]),
        row("IK1", [], [.s], [.e, .s], [.e, .ee, .se, .es]),
        row("I1K1", [], [.s], [.e, .s], [.e, .ee, .es], [.se]),
        row("I1X", [], [], [.e, .s], [.e, .ee, .s, .es], [.se]),
        row("IX1", [], [], [.e, .s], [.e, .ee, .se, .s], [.es]),
        row("I1X1", [], [], [.e, .s], [.e, .ee, .s], [.se, .es]),
    ]

    private static let byName = Dictionary(uniqueKeysWithValues: all.map { ($0.baseName, $0) })

    /// The pattern in ``all`` with this name; nil if there is none.
    public static func named(_ name: String) -> HandshakePattern? { byName[name] }

    private static func row(
        _ name: String, _ initiator: [Token], _ responder: [Token], _ messages: [Token]...
    ) -> HandshakePattern {
        HandshakePattern(
            unchecked: name, initiatorPreMessage: initiator, responderPreMessage: responder,
            messages: messages)
    }
}
