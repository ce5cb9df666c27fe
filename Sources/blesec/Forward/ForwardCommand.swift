internal import BLESec
internal import BLESecJSON
internal import BLESecLinks
internal import BLESecToolKit

/// `blesec forward LOCAL REMOTE`
enum ForwardCommand {
    static let at = Option(
        name: "--at", value: "ENDPOINT",
        help: "Dial the peer at ENDPOINT, or wait for it there with --listen. Without this option, "
            + "both sides look for each other over Bluetooth. With peer:NAME or peer:KEY they do so, "
            + "too: only that peer is accepted, and its last address is not dialed.")
    private static let allow = Option(
        name: "--allow", value: "TARGET", isRepeatable: true,
        help:
            "Let the peer connect to TARGET here: unix:PATH or tcp:ADDRESS:PORT, spelled as the "
            + "peer's side spells REMOTE. May be given several times.")

    static let command = Command(
        name: "blesec forward",
        summary: "carry TCP or Unix connections to a peer, over links that may be lost",
        operands: ["[LOCAL]", "[REMOTE]..."],
        options: ChannelOptions.all.filter { $0 != ChannelOptions.direct } + NearbyArguments.all
            + PeerMemory.all + [at, RouteArguments.listen, allow, PersistentArguments.idle],
        description: [
            "Listens on LOCAL. Each connection there is carried as a stream to the peer, whose "
                + "blesec connects to REMOTE. LOCAL is unix:PATH, or tcp:ADDRESS:PORT with a "
                + "loopback address, such as 127.0.0.1 or [::1]. REMOTE may also be at another "
                + "machine: tcp:ADDRESS:PORT, with a numeric address. Several pairs may be given. "
                + "The peer's side runs `blesec forward --allow REMOTE`, and refuses every other "
                + "target. Each side may forward connections and allow targets at the same time. "
                + "A peer that sends a message, or ends its messages, runs another command: the exit "
                + "status is then 76.",
            "While the peer is out of reach, blesec looks for it, and connections wait. No byte of a "
                + "connection is lost or doubled. If the peer's blesec is started anew, connections "
                + "that its earlier process knew of are ended, and the others are carried. A "
                + "connection that did not end in good order is reset over TCP, so that it does "
                + "not look complete; over a Unix socket it looks as if it had ended in good order. "
                + "When a TCP connection is reset, what is under way at that moment may be lost. A "
                + "program that no longer receives can still send, and what it sends arrives. But if "
                + "that program has refused bytes and ended, and the other program's end is a TCP "
                + "connection that takes nothing for 30 seconds, this connection is reset.",
            "Up to 64 connections of each side are carried at a time; further ones wait, which is "
                + "reported once. A connection counts until both programs have ended it, or one of "
                + "them has reset it. A local program can connect to LOCAL if it can reach the "
                + "address; a Unix socket is only for the same user. Urgent TCP data arrives as "
                + "ordinary data, and descriptors that are passed over a Unix socket do not arrive.",
            "Two commands with the same key end each other's connections to a peer again and again: "
                + "give all pairs and all targets to one command, or make a key for each.",
            "The command ends with Ctrl-C. --peer names the peer to accept, and so does --remember "
                + "with a name that is known. With --anyone, or with several --peer, the first peer "
                + "that connects is the only peer until the command ends.",
            "A connection that cannot be carried is reported on standard error. With --json, this is "
                + "an object: `event` is forward-failed, forward-refused if the peer asked for a "
                + "target that is not allowed, or forward-waiting if too many connections are "
                + "carried; `target` is where the connection was to go, or null, and `reason` says "
                + "what is wrong.",
        ],
        examples: [
            "blesec forward tcp:127.0.0.1:8080 tcp:127.0.0.1:80 --at unix:/run/peer --identity key "
                + "--peer SHA256:...":
                "Reach the peer's web server at port 8080 of this machine.",
            "blesec forward --allow tcp:127.0.0.1:80 --at unix:/run/peer --listen --identity key "
                + "--peer SHA256:...":
                "The other side: let that peer reach the web server here.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        var targets: [ForwardTarget] = []
        for text in arguments.operands {
            targets.append(try ForwardTarget(parsing: text))
        }
        var allowed: [String: ForwardTarget] = [:]
        for text in arguments.values(allow) {
            let target = try ForwardTarget(parsing: text)
            allowed[target.description] = target
        }
        if targets.count % 2 == 1 {
            throw arguments.usage("REMOTE is missing after \(targets[targets.count - 1])")
        }
        let pairs = stride(from: 0, to: targets.count, by: 2).map {
            (local: targets[$0], remote: targets[$0 + 1])
        }
        for (local, _) in pairs where local.isOpenToOtherMachines {
            throw arguments.usage(
                "\(local) would let other machines connect: LOCAL is unix:PATH, tcp:127.0.0.1:PORT "
                    + "or tcp:[::1]:PORT")
        }
        if targets.isEmpty, allowed.isEmpty {
            throw arguments.usage("LOCAL and REMOTE, or \(allow.name), are missing")
        }
        for target in pairs.map(\.remote) + allowed.values
        where target.description.utf8.count > 255 {
            throw arguments.usage("\(target) is too long: a target has at most 255 bytes")
        }
        let memory = try PeerMemory(arguments)
        let endpoint = arguments.value(at)
        let endpointKey = try memory.key(ofOperand: endpoint)
        let rememberedKey = memory.rememberedKey
        let expected = endpointKey ?? rememberedKey
        let options = try ChannelOptions(
            arguments, operandKey: endpointKey, rememberedKey: rememberedKey, memory)
        var configuration = try PersistentArguments.configuration(options, arguments)
        let interruption = Interruption()
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        if !options.acceptsOnlyCertainPeers { configuration.trust = notes.onlyFirstPeer }
        // The local sockets are opened first. If that fails, no peer has connected yet.
        var locals: [(ForwardListener, to: ForwardTarget)] = []
        do throws(LinkError) {
            for pair in pairs {
                locals.append((try await pair.local.listen(on: .shared), to: pair.remote))
            }
        } catch {
            for (listener, _) in locals { await listener.close() }
            throw ChannelError(listening: error)
        }
        let routing: RouteArguments
        do throws(ChannelError) {
            routing = try await RouteArguments(
                arguments, endpoint: endpointKey == nil ? endpoint : nil, options, configuration,
                notes, failures, interruption)
        } catch {
            for (listener, _) in locals { await listener.close() }
            throw error
        }
        for (local, remote) in pairs {
            Diagnostics.note(
                "forwarding \(local) to \(remote) of the peer", "forwarding",
                [("local", .string("\(local)")), ("remote", .string("\(remote)"))])
        }
        let connection = await PeerConnection.start(
            routing.route, to: expected, delivery: PersistentArguments.delivery())
        let failure = await carry(
            Forwarder(connection: connection, allowed: allowed),
            locals, routing.timeLimit, interruption, notes)
        for (listener, _) in locals { await listener.close() }
        await endWithinLimits(on: connection.loop) { limit in
            if failure == nil {
                try? await connection.leave(within: limit)
            } else {
                // Unlike `leave`, `close(.interrupted)` does not wait until this side has confirmed
                // the peer's message.
                try? await connection.close(.interrupted, within: limit)
            }
        } orAbort: {
            await connection.abort()
        }
        await routing.end()
        if let error = failure ?? interruption.error { throw error }
    }

    /// Carries local connections until the connection to the peer is closed, a signal is received,
    /// the first channel takes too long, or the peer turns out to run another command. Returns the
    /// error that ended the connection to the peer, if any.
    private static func carry(
        _ forwarder: Forwarder, _ locals: [(ForwardListener, to: ForwardTarget)],
        _ timeLimit: TimeLimit?, _ interruption: Interruption, _ notes: ConnectionNotes
    ) async -> ChannelError? {
        let connection = forwarder.connection
        let carrying = Task(executorPreference: connection.loop) {
            await withDiscardingTaskGroup { group in
                group.addTask { await forwarder.serve() }
                for (listener, target) in locals {
                    group.addTask { await forwarder.forward(listener, to: target) }
                }
            }
        }
        let watching = Task(executorPreference: connection.loop) { () -> ChannelError? in
            for await status in await connection.states(keeping: 64) {
                do throws(ChannelError) {
                    try notes.report(status)
                } catch {
                    return error
                }
                if status.state == .closed { return status.failure }
            }
            return nil
        }
        let reasonsToEnd: [@Sendable () async -> ChannelError?] = [
            { await timeLimit?.failure(awaitingChannelOf: connection) },
            {
                await Forwarder.awaitMessage(
                    on: forwarder.connection, expectsNoEnd: true,
                    "run `blesec forward` on both sides")
            },
        ]
        let checks = reasonsToEnd.map { reasonToEnd in
            Task(executorPreference: connection.loop) { () -> ChannelError? in
                let failure = await reasonToEnd()
                if failure != nil { watching.cancel() }
                return failure
            }
        }
        interruption.setAction { watching.cancel() }
        let failure = await watching.value
        interruption.setAction(nil)
        var cause: ChannelError?
        for check in checks {
            check.cancel()
            cause = await check.value ?? cause
        }
        carrying.cancel()
        await carrying.value
        return cause ?? failure
    }
}
