internal import BLESec
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// The tool's memory of peers: names for keys, and each peer's last address.
struct PeerMemory: Sendable {
    static let state = Option(
        name: "--state", value: "DIR",
        help: "The directory of remembered peers: their names, fingerprints and last addresses. "
            + "Nobody else may have access to DIR. The default is $XDG_STATE_HOME/blesec, or "
            + "~/.local/state/blesec if XDG_STATE_HOME is not set, or is not an absolute path.")
    static let remember = Option(
        name: "--remember", value: "NAME",
        help: "Remember the peer as NAME after the peer has proven its key. From then on, only "
            + "that peer is accepted as NAME. `blesec connect peer:NAME` finds the peer again. NAME "
            + "must not be a key.")

    static let all = [remember, state]

    private var folder: StateFolder?
    private let name: String?
    /// The NAME of `peer:NAME`.
    private let peerName: String?
    /// See ``rememberedKey``.
    private let boundKey = Locked<Fingerprint?>(nil)
    /// Whether an error in the folder ends the command.
    private let requiresFolder: Bool

    /// Opens the folder, for a command that remembers or names a peer, and checks its contents. The
    /// folder is created only for a command that remembers a peer.
    ///
    /// With `--remember`, `--state` or `peer:NAME`, an error in the folder is thrown here, before a
    /// peer is dialed. With `peer:KEY` alone, the folder only helps to avoid a scan, so an error in
    /// the folder is reported and ignored. A missing default folder is no error.
    init(_ arguments: Arguments) throws(ChannelError) {
        name = arguments.value(Self.remember)
        if let name { try Self.requireName(name, arguments) }
        let hasOption = name != nil || arguments.has(Self.state)
        let nameOrKey =
            arguments.operands.first.flatMap(Self.nameOrKey)
            ?? arguments.value(ForwardCommand.at).flatMap(Self.nameOrKey)
        peerName = nameOrKey.flatMap { (try? PeerKey(parsing: $0)) == nil ? $0 : nil }
        requiresFolder = hasOption || peerName != nil
        guard hasOption || nameOrKey != nil else { return }
        let opened: StateFolder
        do throws(ChannelError) {
            guard let path = try Self.path(arguments) else {
                guard requiresFolder else { return }
                throw arguments.usage(
                    "neither --state nor a home directory says where peers are remembered")
            }
            opened = try name == nil ? StateFolder(path) : StateFolder.make(path)
        } catch {
            let isMissing =
                name == nil && error.code == .noSuchFile && !arguments.has(Self.state)
            guard isMissing || !requiresFolder else { throw error }
            if !isMissing { Self.reportUnused(error) }
            return
        }
        do throws(ChannelError) {
            try opened.check()
            if let name {
                let key = try opened.knownPeers.key(named: name)
                boundKey.withLock { $0 = key }
            }
            folder = opened
        } catch {
            guard !requiresFolder else { throw error }
            Self.reportUnused(error)
        }
    }

    /// The path of the folder of remembered peers, which need not exist; nil if neither --state nor
    /// the environment names a folder.
    ///
    /// - Throws: `configuration` when the path in the environment is not UTF-8.
    static func path(_ arguments: Arguments) throws(ChannelError) -> String? {
        if let path = arguments.value(state) { return path }
        return try StateFolder.standardPath
    }

    /// Throws unless a peer can be remembered as `name`, and then be named by `peer:NAME`.
    static func requireName(_ name: String, _ arguments: Arguments) throws(ChannelError) {
        guard (1...KnownPeersFile.maximumNameLength).contains(name.utf8.count) else {
            throw arguments.usage(
                "a name to remember has 1 to \(KnownPeersFile.maximumNameLength) bytes")
        }
        guard PeerKey(name) == nil else {
            throw arguments.usage(
                "`\(name)` is a key, and peer:NAME would mean the holder of the key: choose another "
                    + "name")
        }
    }

    /// The NAME or KEY in an operand `peer:NAME` or `peer:KEY`; nil for any other operand.
    static func nameOrKey(_ operand: String) -> String? {
        operand.hasPrefix("peer:") ? String(operand.dropFirst(5)) : nil
    }

    /// The key of the peer that an operand `peer:NAME` or `peer:KEY` names; nil for any other
    /// operand.
    func key(ofOperand operand: String?) throws(ChannelError) -> PeerKey? {
        guard let text = operand.flatMap(Self.nameOrKey) else { return nil }
        return try key(text)
    }

    /// The key that `text` spells, or the key that is remembered by the name `text`, or by the name
    /// for which `blesec peers list` prints `text`.
    func key(_ text: String) throws(ChannelError) -> PeerKey {
        if let key = try? PeerKey(parsing: text) { return key }
        let named = try folder?.knownPeers.key(named: text)
        let listed = try folder?.knownPeers.peers().first {
            $0.name != text && RememberedPeer($0, address: nil).listedName == text
        }
        if named != nil, let listed, listed.key != named {
            throw ChannelError(
                .usage,
                "`\(text)` is the name of one peer, and what `blesec peers list` prints for another: "
                    + "rename one of them by `blesec peers rename`")
        }
        if let key = named ?? listed?.key { return PeerKey(fingerprint: key) }
        // Even a key that this side has verified does not count before the pairing is complete:
        // nothing shows whether the peer has stored this side's key.
        if try folder?.knownPeers.pendingPeers().contains(where: { $0.name == text }) == true {
            throw ChannelError(
                .noSuchPeer,
                "the pairing with `\(text)` was interrupted: run `blesec pair` on both sides again")
        }
        throw ChannelError(
            .noSuchPeer,
            "nobody called `\(text)` is remembered"
                + (folder.map { " in \($0.path)" } ?? "")
                + ": give its key, pair with it by `blesec pair`, or connect with --remember first")
    }

    /// The path of the identity that `blesec pair` has made; nil if there is none. The path is only
    /// for a command with `peer:NAME`, or with `--remember NAME` where NAME is remembered already.
    /// For any other command the path is nil.
    var identityPath: String? {
        guard let folder, let name = name ?? peerName else { return nil }
        let isKnown = (try? folder.knownPeers.key(named: name)) != nil || peerName != nil
        return unsafe isKnown && access(folder.identityPath, F_OK) == 0 ? folder.identityPath : nil
    }

    /// The key of the peer with the name of `--remember`: the first key that this command has found
    /// under that name, or has stored there. Nil before that.
    var rememberedKey: PeerKey? { boundKey.withLock { $0 }.map { PeerKey(fingerprint: $0) } }

    /// The policy with the restriction that `--remember NAME` adds. While NAME has a key, only the
    /// peer with that key is accepted. If this command has found a key under NAME, or has stored one
    /// there, and NAME does not have that key any more, nobody is accepted: another process has
    /// removed or changed the entry.
    func restricting(_ policy: TrustPolicy) -> TrustPolicy {
        guard let folder, let name else { return policy }
        return policy.requiring { claimed throws(ChannelError) in
            let stored = try folder.knownPeers.key(named: name)
            // Another command may have bound the name.
            let known = boundKey.withLock { key in
                key = key ?? stored
                return key
            }
            if let known, stored != known { return .refuse(Self.forgotten(name, known).reason) }
            guard let stored, stored != claimed.fingerprint else { return .admit }
            return .refuse("`\(name)` is the name of \(stored), and not of this peer")
        }
    }

    /// The error for a name that had the key, and does not have it any more.
    private static func forgotten(_ name: String, _ key: Fingerprint) -> ChannelError {
        ChannelError(
            .untrusted,
            "`\(name)` was the name of \(key), and has been forgotten or changed meanwhile: to accept "
                + "a peer as `\(name)`, start again")
    }

    /// The endpoint at which the peer with this key was last reached; nil if it is unknown.
    func lastEndpoint(of key: PeerKey) throws(ChannelError) -> Endpoint? {
        do throws(ChannelError) {
            let text = try folder?.lastAddresses.address(of: key.fingerprint)
            return try text.map(endpoint)
        } catch {
            guard !requiresFolder else { throw error }
            Self.reportUnused(error)
            return nil
        }
    }

    private func endpoint(_ text: String) throws(ChannelError) -> Endpoint {
        // The address type follows the last space: the path of a socket may contain spaces.
        guard let space = text.lastIndex(of: " "),
            let type = AddressType(rawValue: String(text[text.index(after: space)...])),
            var endpoint = try? Endpoint(parsing: String(text[..<space]))
        else {
            throw ChannelError(
                .badKey,
                "\(folder?.lastAddresses.path ?? ""): `\(text)` is no address: remove its line")
        }
        endpoint.addressType = type
        return endpoint
    }

    /// Remembers a peer that has proven its key: the peer's name, if `--remember` is given, and the
    /// peer's address, if the peer has a name.
    ///
    /// - Throws: when the name cannot be stored, or was forgotten meanwhile. If only the address
    ///   cannot be stored, the failure is reported and ignored, since the channel works.
    func remember(_ peer: PeerIdentity?, at endpoint: Endpoint?) throws(ChannelError) {
        guard let folder else { return }
        guard let key = peer?.fingerprint else {
            guard let name else { return }
            throw ChannelError(
                .untrusted,
                "the peer proves no key, so it cannot be remembered as `\(name)`: use a protocol in "
                    + "which it does")
        }
        if let name { try bind(name, to: key, in: folder) }
        guard let endpoint = endpoint?.absolute else { return }
        let text = "\(endpoint) \(endpoint.addressType.rawValue)"
        guard text.utf8.count <= LastAddressesFile.maximumAddressLength else { return }
        do throws(ChannelError) {
            guard try folder.knownPeers.contains(key) else { return }
            try folder.lastAddresses.record(text, of: key)
        } catch {
            Diagnostics.note(
                "the peer's address will not be remembered: \(error.reason)", "not-remembered",
                [("reason", .string(error.reason))])
        }
    }

    /// Binds the name to the key, unless this command has found or made this binding before.
    ///
    /// - Throws: `untrusted` if the name has lost the key that this command found or bound, because
    ///   another process has removed or changed the entry; the errors of ``KnownPeersFile``.
    private func bind(
        _ name: String, to key: Fingerprint, in folder: StateFolder
    ) throws(ChannelError) {
        let known = boundKey.withLock { $0 }
        if let known, try folder.knownPeers.key(named: name) != known {
            throw Self.forgotten(name, known)
        }
        guard key != known else { return }
        try folder.knownPeers.bind(name, to: key)
        boundKey.withLock { $0 = key }
    }

    /// The error for a peer at `endpoint` that shows a key other than the expected one. The error
    /// names both keys and, for a remembered peer, also the peer's name, and the file and the line of
    /// the expected key. Nil if `error` has another cause.
    func changedKeyError(
        _ error: ChannelError, of peer: PeerKey, at endpoint: Endpoint
    ) -> ChannelError? {
        guard error.code == .untrusted, let found = error.claimed?.fingerprint,
            found != peer.fingerprint
        else { return nil }
        let known = (try? folder?.knownPeers.peers())?.first { $0.key == peer.fingerprint }
        guard let folder, let known else {
            return ChannelError(
                .untrusted, "whoever is at \(endpoint) shows \(found), and not \(peer.fingerprint)")
        }
        return ChannelError(
            .untrusted,
            "the key of `\(known.name)` is another one: whoever is at \(endpoint) shows \(found), and "
                + "\(folder.knownPeers.path), line \(known.line), has \(known.key). Somebody else "
                + "may be there. If \(known.name) has a new key, compare it, and correct that line")
    }

    private static func reportUnused(_ error: ChannelError) {
        Diagnostics.note(
            "what is remembered is not used: \(error.reason)", "memory-unused", error.members)
    }
}
