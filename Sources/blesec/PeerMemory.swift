internal import BLESec
internal import ToolKit

/// What the tool remembers of peers: names for keys, and where each was reached last.
struct PeerMemory: Sendable {
    static let state = Option(
        name: "--state", value: "DIR",
        help: "Where peers are remembered: their names, fingerprints and last addresses, in a "
            + "folder that nobody else may enter. Without it, blesec in $XDG_STATE_HOME or in "
            + "~/.local/state.")
    static let remember = Option(
        name: "--remember", value: "NAME",
        help:
            "Remember the peer as NAME once it has proven its key, and accept nobody else by that "
            + "name afterwards; peer:NAME finds it again.")

    static let all = [remember, state]

    private let folder: StateFolder?
    /// Why there is no folder though there may be one.
    private let refusal: ChannelError?
    private let name: String?

    /// Opens the folder; it is made only for who wants to remember somebody. One that nobody has asked
    /// for and that cannot be used, such as another user's, matters only when a name is looked up.
    init(_ arguments: Arguments) throws(ChannelError) {
        name = arguments.value(Self.remember)
        if let name, !(1...KnownPeersFile.maximumNameLength).contains(name.utf8.count) {
            throw arguments.usage(
                "a name to remember has 1 to \(KnownPeersFile.maximumNameLength) bytes")
        }
        guard let path = arguments.value(Self.state) ?? StateFolder.standardPath else {
            guard name == nil else {
                throw arguments.usage("neither --state nor a home directory says where to remember")
            }
            (folder, refusal) = (nil, nil)
            return
        }
        guard name == nil else {
            (folder, refusal) = (try StateFolder.make(path), nil)
            return
        }
        do throws(ChannelError) {
            (folder, refusal) = (try StateFolder(path), nil)
        } catch {
            guard !arguments.has(Self.state) else { throw error }
            (folder, refusal) = (nil, error.code == .noSuchFile ? nil : error)
        }
    }

    /// The key that `text` is, or the one that it is the name of.
    func key(_ text: String) throws(ChannelError) -> PeerKey {
        if let key = try? PeerKey(text) { return key }
        if let refusal { throw refusal }
        guard let key = try folder?.knownPeers.key(named: text) else {
            throw ChannelError(
                .noSuchPeer,
                "nobody called `\(text)` is remembered"
                    + (folder.map { " in \($0.path)" } ?? "")
                    + ": give the key itself, or --remember it the first time")
        }
        return PeerKey(fingerprint: key)
    }

    /// The key that the name to be remembered has already.
    var expected: PeerKey? {
        get throws(ChannelError) {
            guard let name, let key = try folder?.knownPeers.key(named: name) else { return nil }
            return PeerKey(fingerprint: key)
        }
    }

    /// Where the key was reached last.
    func lastEndpoint(of key: PeerKey) throws(ChannelError) -> Endpoint? {
        guard let text = try folder?.lastAddresses.address(of: key.fingerprint) else { return nil }
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        guard var endpoint = try? Endpoint(String(words[0])), words.count == 2,
            let type = AddressType(rawValue: String(words[1]))
        else {
            throw ChannelError(
                .badKey,
                "\(folder?.lastAddresses.path ?? ""): `\(text)` is no address: remove its line")
        }
        endpoint.addressType = type
        return endpoint
    }

    /// Remembers a peer that has proven itself: by name, if it is to be, and where it was reached, if
    /// it has a name.
    func note(_ peer: PeerIdentity?, at endpoint: Endpoint?) throws(ChannelError) {
        guard let folder, let key = peer?.fingerprint else { return }
        if let name { try folder.knownPeers.bind(name, to: key) }
        guard let endpoint, try folder.knownPeers.contains(key) else { return }
        let text = "\(endpoint) \(endpoint.addressType.rawValue)"
        guard text.utf8.count <= LastAddressesFile.maximumAddressLength else { return }
        try folder.lastAddresses.note(text, of: key)
    }
}
