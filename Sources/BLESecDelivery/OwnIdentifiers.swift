/// The identifiers of this side that the peer may name: the tokens of its instances, and its epochs.
struct OwnIdentifiers {
    /// As in ``StoredEndpoint/own``.
    private var all: [Identifier]
    /// The token of this instance.
    private(set) var token: Identifier
    /// Whether the peer may name ``token``, so that the token is one of ``all``.
    private(set) var includesToken = false

    init(_ all: [Identifier], token: Identifier) {
        self.all = all
        self.token = token
    }

    /// Whether `identifier` is not one of this side's own, as far as this side knows; false for
    /// ``Identifier/none``.
    func isForeign(_ identifier: Identifier) -> Bool {
        identifier != .none && identifier != token && !all.contains(identifier)
    }

    /// Whether one of these identifiers belongs to the same store as `identifier`.
    func includesStore(of identifier: Identifier) -> Bool {
        all.contains { $0.sharesStore(with: identifier) }
    }

    /// Adds an identifier as the newest, or makes it the newest if it is there already.
    mutating func makeNewest(_ identifier: Identifier) {
        StoredEndpoint.add(identifier, to: &all)
        if identifier == token { includesToken = true }
    }

    /// Replaces this instance's token. The peer may name both.
    mutating func replaceToken(_ token: Identifier) {
        self.token = token
        makeNewest(token)
    }
}
