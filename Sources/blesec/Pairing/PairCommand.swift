internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// `blesec pair [TARGET] --name NAME`
enum PairCommand {
    private static let name = Option(
        name: "--name", value: "NAME",
        help: "This side's own name for the peer. From then on, `peer:NAME` means this peer in "
            + "every command. NAME must not be a key. If NAME already has another key, or gets "
            + "another key meanwhile, the command fails, and NAME keeps the other key.")
    /// CODE is optional. The word after `--code` is CODE only if it begins with a digit or is `-`.
    private static let code = Option(
        name: "--code", value: "CODE", ifNextWordBeginsWith: (0...9).map(String.init),
        help:
            "Pair by a code of 4 to 12 digits. Without CODE, a new code is shown: enter it on the "
            + "other side. CODE is the code that the other side shows. `-` reads the code from "
            + "standard input, which is safer: other users can see arguments.")
    private static let digits = Option(
        name: "--digits", value: "N",
        help:
            "How many digits a new code has, 4 to 12. The default is 6. With 4 digits, an attacker "
            + "who uses all three tries of each side succeeds in 6 of 10,000 pairings.")
    /// URI is optional. The word after `--uri` is URI only if it begins with `blesec:` or is `-`.
    private static let uri = Option(
        name: "--uri", value: "URI", ifNextWordBeginsWith: ["blesec:"],
        help:
            "Pair by an invitation. Without URI, a new invitation is shown, as a QR code and as "
            + "text. URI is the invitation that the other side shows. `-` reads the invitation "
            + "from standard input, as `zbarcam --raw` prints it after a scan.")
    private static let png = Option(
        name: "--png", value: "FILE",
        help: "Also write a new invitation to FILE, as a PNG image. FILE must not exist yet, and "
            + "is made with mode 0600. Remove FILE afterwards.")
    private static let expires = Option(
        name: "--expires", value: "SECONDS",
        help: "How long a new invitation is valid, 1 to 3600. The default is 120 seconds.")
    private static let timeout = Option(
        name: "--timeout", value: "SECONDS",
        help: "Give up, with exit status 75, if no peer is paired within this time. The wait for "
            + "a code or an invitation on standard input counts, too. The default is 120 seconds or, "
            + "with a new invitation, the time for which the invitation is valid. A longer time is "
            + "allowed only with the other side's invitation.")
    private static let identityFile = Option(
        name: "--identity", short: "i", value: "FILE",
        help: "Prove the identity in FILE, which `blesec keygen` made. By default the key is in "
            + "the file `identity` in the directory of remembered peers.")
    static let heard = Option(
        name: "--heard", value: "N",
        help: "Dial a peer only after it was heard N times, 1 to 8. The default is 1.")
    /// The options about nearby peers.
    static let nearby = NearbyArguments.all.map { $0 == NearbyArguments.heard ? heard : $0 }

    static let command = Command(
        name: "blesec pair", summary: "exchange keys with a peer, by a scan or a short code",
        operands: ["[TARGET]"],
        options: [
            name, code, digits, uri, png, expires, RouteArguments.listen, PeerMemory.state,
            identityFile,
        ] + IdentityOptions.all + [ChannelOptions.adapter, ChannelOptions.addressType] + nearby
            + [timeout, .json],
        description: [
            "Two people who meet make their devices know each other. One side shows a code or an "
                + "invitation, which is entered or scanned on the other side. When both sides have "
                + "confirmed the pairing, each prints `paired: NAME FINGERPRINT`, and remembers the "
                + "other side's key as NAME.",
            "Without TARGET, the side that shows the code or the invitation advertises a service over "
                + "Bluetooth, and the other side looks for it. TARGET is an endpoint, as `blesec "
                + "connect` takes it, or service:UUID. With --listen, this side waits at the endpoint. "
                + "At an endpoint, the side that shows the code or the invitation waits.",
            "Without --code and --uri, a new code is shown. The code or the invitation is on standard "
                + "error, in a line of its own: `code: DIGITS` or `uri: blesec:...`. A code may be "
                + "tried three times on each side, within 120 seconds. An invitation proves both sides "
                + "with one scan. Whoever sees it can pair in place of the other side, and only the "
                + "first key that uses it is accepted.",
            "If the link is lost after the last confirmation, or the command ends then, or the other "
                + "side does not answer, a side may not know whether the other side has finished. It "
                + "then prints `may be paired`, and exits with status 75, or with the signal's "
                + "status after a signal. Run `blesec pair` with the same names on both sides again "
                + "within 24 hours, with a new code or invitation: this completes the pairing, or "
                + "pairs anew.",
            "Without --identity, this side's key is in the file `identity` in the directory of "
                + "remembered peers. If there is no such file, it is made with a new key. Commands "
                + "that name a remembered peer use this key too.",
        ],
        examples: [
            "blesec pair --name bob": "Show a code, and wait for the peer on which it is entered.",
            "blesec pair --name alice --code 123456": "Pair with the side that shows 123456.",
            "blesec pair --name bob --uri": "Show an invitation to scan.",
            "zbarcam --raw -1 | blesec pair --name alice --uri -":
                "Scan the other side's invitation, and pair.",
            "blesec pair unix:s --listen --name bob": "Pair without Bluetooth, on one machine.",
        ],
        statuses: ExitStatus.allCases.filter { $0 != .becameWorse }, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        guard let name = arguments.value(name) else { throw arguments.usage("--name is missing") }
        try PeerMemory.requireName(name, arguments)
        guard let path = try PeerMemory.path(arguments) else {
            throw arguments.usage(
                "neither --state nor a home directory says where to remember peers")
        }
        let (request, limit) = try await request(arguments)
        let place = try PairingPlace(arguments, request)
        let folder = try StateFolder.make(path)
        try folder.check()
        let identity = try identity(arguments, folder)
        let method = try pairingMethod(request, identity, place)
        if case .invitation(let invitation) = method, !invitation.isOwn,
            invitation.expires < time(nil)
        {
            Diagnostics.note(
                "by this side's clock the invitation has expired; the inviter decides whether it "
                    + "is still valid", "old")
        }
        var configuration = ChannelConfiguration(
            identity: identity,
            trust: .pairing(method, store: folder.knownPeers, name: name))
        configuration.protocols = [ChannelOptions.defaultProtocol(for: identity)]
        let session = PairingSession(
            method: method, place: place, configuration: configuration, limit: limit,
            afterLimit: request.remedyAfterLimit)
        let interruption = Interruption()
        let offer = request.showsSecret ? PairingOffer(method, png: arguments.value(png)) : nil
        let key = try await interruption.cancelling {
            () async throws(ChannelError) -> Fingerprint? in
            do throws(ChannelError) {
                let channel = try await session.pair { () throws(ChannelError) in
                    try offer?.show()
                }
                let key = await channel.peer.fingerprint
                if let key, let endpoint = session.dialedEndpoint(of: channel)?.absolute {
                    remember(endpoint, of: key, in: folder)
                }
                try await session.close(channel)
                return key
            } catch {
                // After a signal, the command ends with the signal's error, which does not say that
                // the peer may be paired.
                if error.code == .mayBePaired, interruption.error != nil {
                    Diagnostics.note(error.reason, "may-be-paired", error.members, at: -1)
                }
                throw error
            }
        }
        let fingerprint = key?.description ?? ""
        try StandardOutput.print(
            line: "paired: \(name) \(fingerprint)",
            or: [("paired", .string(name)), ("fingerprint", .string(fingerprint))])
    }

    /// Stores the endpoint at which the peer was dialed.
    private static func remember(_ endpoint: Endpoint, of key: Fingerprint, in folder: StateFolder)
    {
        do throws(ChannelError) {
            try folder.lastAddresses.record(
                "\(endpoint) \(endpoint.addressType.rawValue)", of: key)
        } catch {
            Diagnostics.note(
                "the peer's address will not be remembered: \(error.reason)", "not-remembered",
                [("reason", .string(error.reason))])
        }
    }

    /// The identity in the file of --identity, or else the identity in `folder`. If `folder` has no
    /// identity, a new identity is made there.
    private static func identity(
        _ arguments: Arguments, _ folder: StateFolder
    ) throws(ChannelError) -> IdentityKey {
        if let path = arguments.value(identityFile) {
            return try IdentityOptions.load(path, arguments)
        }
        if unsafe access(folder.identityPath, F_OK) == 0 {
            return try IdentityOptions.load(folder.identityPath, arguments)
        }
        return try IdentityFile.loadOrCreate(
            folder.identityPath, passphrase: try IdentityOptions.passphrase(arguments))
    }

    /// What the command line asks for: to make a code or an invitation, or to use the code or the
    /// invitation that the other side has made.
    enum Request {
        case newCode(length: Int), code(digits: String)
        case newInvitation(lifetime: Duration), invitation(PairingInvitation)

        /// What the user can do when the limit has passed.
        var remedyAfterLimit: String {
            switch self {
            case .newCode: "begin again, with a new code"
            case .newInvitation: "begin again, with a new invitation"
            case .code, .invitation: Self.remedyOfUsingSide
            }
        }
        /// The remedy for the side on which the other side's code or invitation is used.
        static let remedyOfUsingSide = "begin again while the other side waits"

        /// Whether this side makes the code or the invitation, and shows it.
        var showsSecret: Bool {
            switch self {
            case .newCode, .newInvitation: true
            case .code, .invitation: false
            }
        }
    }

    /// What the command line asks for, and how long this side then waits for the other side.
    private static func request(
        _ arguments: Arguments
    ) async throws(ChannelError) -> (Request, TimeLimit) {
        try arguments.exclude(code, uri)
        let isInvitation = arguments.has(uri)
        let text = arguments.value(isInvitation ? uri : code) ?? ""
        let isNew = text.isEmpty
        let isNewCode = isNew && !isInvitation
        let isNewInvitation = isNew && isInvitation
        if !isNewCode { try arguments.refuse([digits], "goes with a new code") }
        if !isNewInvitation {
            try arguments.refuse([png, expires], "goes with a new invitation")
        }
        if isNewInvitation {
            let seconds = try arguments.number(expires, in: 1...3_600)
            let lifetime: Duration =
                seconds.map { .seconds($0) } ?? PairingInvitation.defaultLifetime
            return (
                .newInvitation(lifetime: lifetime),
                try limit(arguments, lifetime, "the invitation is valid: use --expires")
            )
        }
        // The other side decides how long its invitation is valid. So no lifetime limits `--timeout` for
        // an invitation here.
        let fullLimit =
            try isInvitation
            ? TimeLimit(arguments, timeout) ?? TimeLimit(PairingInvitation.defaultLifetime)
            : limit(arguments, TrustPolicy.PairingCode.defaultLifetime, "a code is valid")
        if isNewCode {
            let length = try arguments.number(digits, in: TrustPolicy.PairingCode.lengths)
            return (.newCode(length: length ?? 6), fullLimit)
        }
        let isOnStandardInput = text == "-"
        // The wait for standard input is a part of the limit.
        let limit = isOnStandardInput ? fullLimit.begun : fullLimit
        let codeOrURI = isOnStandardInput ? try await readLine(within: limit) : text
        let request: Request =
            isInvitation
            ? .invitation(try PairingInvitation(parsing: codeOrURI))
            : .code(digits: try TrustPolicy.PairingCode(codeOrURI).digits)
        return (request, limit)
    }

    /// The value of `--timeout`; if it was not given, the time for which the code or the new
    /// invitation is valid.
    ///
    /// - Throws: `usage` when the value is longer than `lifetime`, the time for which the code or the
    ///   invitation is valid. `ending` is the end of the error's text.
    private static func limit(
        _ arguments: Arguments, _ lifetime: Duration, _ ending: String
    ) throws(ChannelError) -> TimeLimit {
        let limit = try TimeLimit(arguments, timeout) ?? TimeLimit(lifetime)
        guard limit.duration <= lifetime else {
            throw arguments.usage(
                "--timeout is longer than the \(lifetime.components.seconds) seconds for which "
                    + ending)
        }
        return limit
    }

    /// The first line of standard input. Throws `timedOut` if the line does not come within `limit`.
    private static func readLine(within limit: TimeLimit) async throws(ChannelError) -> String {
        let result = await withTaskGroup(of: Result<String, ChannelError>.self) { group in
            group.addTask {
                do throws(ChannelError) {
                    return .success(try await readLine())
                } catch {
                    return .failure(error)
                }
            }
            group.addTask {
                try? await limit.wait()
                return .failure(PairingSession.tooLate(Request.remedyOfUsingSide))
            }
            let first = await group.next()
            group.cancelAll()
            return first ?? .failure(ChannelError(.cancelled, "interrupted"))
        }
        return try result.get()
    }

    /// The first line of standard input.
    private static func readLine() async throws(ChannelError) -> String {
        var bytes: [UInt8] = []
        while !bytes.contains(UInt8(ascii: "\n")), bytes.count <= 10_000,
            let more = try await StandardInput.shared.next()
        {
            bytes += more
        }
        let line = bytes.prefix { $0 != UInt8(ascii: "\n") }
        return String(decoding: line, as: UTF8.self)
    }

    /// The method of pairing that `request` asks for. Makes the code or the invitation if a new one is
    /// asked for. The lifetime of a code or of a new invitation begins with this call.
    private static func pairingMethod(
        _ request: Request, _ identity: IdentityKey, _ place: PairingPlace
    ) throws(ChannelError) -> TrustPolicy.Pairing {
        switch request {
        case .newCode(let length): return .code(TrustPolicy.PairingCode(length: length))
        case .code(let digits): return .code(try TrustPolicy.PairingCode(digits))
        case .newInvitation(let lifetime):
            return .invitation(
                PairingInvitation(
                    from: identity.fingerprint,
                    service: place.service.map { $0.description.lowercased() },
                    lifetime: lifetime, now: Int64(time(nil))))
        case .invitation(let invitation): return .invitation(invitation)
        }
    }
}
