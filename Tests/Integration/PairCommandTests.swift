import BLESec
import BLESecChannelCore
import BLESecCredentials
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec pair` from end to end, without Bluetooth.
    @Suite struct PairCommandTests {
        private let folder = ScratchFolder()
        private var endpoint: String { "unix:\(folder.file("socket"))" }

        private func state(_ side: String) -> [String] { ["--state", folder.file(side)] }

        /// Starts the side that waits, and returns it when it can be dialed, with what it shows.
        private func listen(
            _ arguments: [String], shows: String
        ) throws -> (tool: Subprocess, shown: String) {
            let tool = try Tool.start(
                ["pair", endpoint, "--listen", "--name", "bob"] + state("alice") + arguments)
            let line = try tool.line("\(shows): ")
            return (tool, String(line.dropFirst(shows.count + 2)))
        }

        private func dial(_ arguments: [String]) throws -> Subprocess.Outcome {
            try Tool.run(
                arguments: ["pair", endpoint, "--name", "alice"] + state("bob") + arguments)
        }

        private func knownPeers(_ side: String) throws -> [String: Fingerprint] {
            let peers = try KnownPeersFile(folder.file("\(side)/known_peers")).peers()
            return Dictionary(
                peers.map { ($0.name, $0.key) }, uniquingKeysWith: { first, _ in first })
        }

        /// Expects that both sides have said that they are paired, and have stored each other.
        private func expectPaired(
            _ listener: Subprocess.Outcome, _ dialer: Subprocess.Outcome
        ) throws {
            #expect(listener.status == 0, "\(listener.errors)")
            #expect(dialer.status == 0, "\(dialer.errors)")
            let bob = try #require(try knownPeers("alice")["bob"])
            let alice = try #require(try knownPeers("bob")["alice"])
            #expect(listener.text == "paired: bob \(bob)\n")
            #expect(dialer.text == "paired: alice \(alice)\n")
        }

        @Test("two tools pair by a code, and then the dialer needs only the peer's name")
        func code() throws {
            let (listener, code) = try listen([], shows: "code")
            #expect(code.count == 6 && code.allSatisfy(\.isNumber))
            let dialer = try dial(["--code", code])
            try expectPaired(try listener.wait(), dialer)
            // From now on, the name is enough for the dialer: keys and identity are in the folder.
            let bob = try #require(try knownPeers("alice")["bob"])
            let accepting = try Tool.start(
                [
                    "listen", endpoint, "--identity", folder.file("alice/identity"), "--peer",
                    bob.description,
                ])
            _ = try accepting.line("listening on ")
            let dialing = try Tool.start(
                ["connect", endpoint, "--remember", "alice"] + state("bob"),
                input: .bytes(Array("from bob".utf8)))
            let (dialed, accepted) = (try dialing.wait(), try accepting.wait())
            #expect(dialed.status == 0, "\(dialed.errors)")
            #expect(accepted.status == 0 && accepted.text == "from bob", "\(accepted.errors)")
        }

        @Test("`--code` without CODE shows a new code")
        func newCode() throws {
            let (listener, code) = try listen(["--code"], shows: "code")
            #expect(code.count == 6 && code.allSatisfy(\.isNumber))
            listener.signal(SIGINT)
            #expect(try listener.wait().status == 130)
        }

        @Test(
            "two tools pair by an invitation, in an argument or on standard input, and the PNG shows it"
        )
        func invitation() throws {
            for (round, fromInput) in [false, true].enumerated() {
                let picture = folder.file("\(round).png")
                let (listener, uri) = try listen(["--uri", "--png", picture], shows: "uri")
                let read = try Subprocess.run("zbarimg", ["--raw", "-q", picture])
                #expect(read.text == uri + "\n")
                let outcome: Subprocess.Outcome
                if fromInput {
                    let dialer = try Tool.start(
                        ["pair", endpoint, "--name", "alice", "--uri", "-"] + state("bob"),
                        input: .bytes(Array("\(uri)\n".utf8)))
                    outcome = try dialer.wait()
                } else {
                    outcome = try dial(["--uri", uri])
                }
                try expectPaired(try listener.wait(), outcome)
                #expect(folder.mode("\(round).png") == 0o600)
            }
        }

        @Test(
            "connect refuses the name of an interrupted pairing, even if this side has verified the peer"
        )
        func pendingByName() throws {
            let (listener, code) = try listen([], shows: "code")
            let dialer = try dial(["--code", code])
            try expectPaired(try listener.wait(), dialer)
            let alice = try #require(try knownPeers("bob")["alice"])
            let knownPeersFile = KnownPeersFile(folder.file("bob/known_peers"))
            for isVerified in [false, true] {
                // Makes the state of a side that has not received the pairing's last record. The
                // removed entry `alice` is known in the first round, and pending in the second.
                #expect(try knownPeersFile.remove("alice"))
                try knownPeersFile.keepPending(
                    TrustPolicy.PendingPeer(
                        name: "alice", key: alice, transcript: [UInt8](repeating: 1, count: 32),
                        isVerified: isVerified))
                // This listener has not stored the other side, and would accept it all the same.
                let accepting = try Tool.start(
                    [
                        "listen", endpoint, "--identity", folder.file("alice/identity"),
                        "--anyone",
                    ])
                _ = try accepting.line("listening on ")
                let dialing = try Tool.run(
                    arguments: ["connect", "peer:alice", "--timeout", "20"] + state("bob"))
                #expect(dialing.status == 68, "\(dialing.errors)")
                #expect(dialing.errors.contains("run `blesec pair` on both sides again"))
                accepting.signal(SIGTERM)
                _ = try accepting.wait()
                #expect(try knownPeers("bob").isEmpty)
                #expect(try knownPeersFile.pendingPeers().map(\.name) == ["alice"])
            }
        }

        @Test(
            "a listener that cannot store a pairing ends with the store's error, and admits no further try"
        )
        func unwritableState() throws {
            // The limit is 512 bytes. The key's file is shorter, and a line with this name is longer,
            // since each % takes three characters.
            let name = String(repeating: "%", count: 255)
            let script = #"ulimit -f 1 && exec "$@""#
            let listener = try Subprocess(
                "dash",
                ["-c", script, "dash", Tool.path, "pair", endpoint, "--listen", "--name", name]
                    + state("alice"))
            let code = try listener.line("code: ").dropFirst("code: ".count)
            let dialer = try dial(["--code", String(code)])
            #expect(dialer.status == 69, "\(dialer.errors)")
            let outcome = try listener.wait()
            #expect(outcome.status == 73 && outcome.text == "", "\(outcome.errors)")
            let error = try #require(outcome.errors.split(separator: "\n").last)
            #expect(error.contains("known_peers.pending cannot be created: File too large"))
            #expect(try knownPeers("alice").isEmpty && knownPeers("bob").isEmpty)
        }

        @Test("after three wrong codes the listener exits, and neither side knows the other")
        func wrongCodes() throws {
            let (listener, code) = try listen(["--digits", "4"], shows: "code")
            #expect(code.count == 4)
            let wrong = code == "0000" ? "0001" : "0000"
            for _ in 0..<3 {
                let dialer = try dial(["--code", wrong])
                #expect(dialer.status == 69, "\(dialer.errors)")
                #expect(dialer.errors.contains("refuses to pair"))
            }
            let outcome = try listener.wait()
            #expect(outcome.status == 77 && outcome.text == "")
            #expect(outcome.errors.contains("make a new one"))
            #expect(try knownPeers("alice").isEmpty && knownPeers("bob").isEmpty)
        }

        /// The configuration of a side that pairs in this process.
        private func configuration(
            _ code: String, _ store: HookedStore, name: String
        ) throws -> ChannelConfiguration {
            ChannelConfiguration(
                identity: try IdentityKey.generate(),
                trust: .pairing(
                    .code(try TrustPolicy.PairingCode(code)), store: store, name: name))
        }

        /// The known peers of the side that pairs in this process.
        private var inProcessFile: KnownPeersFile { KnownPeersFile(folder.file("held")) }

        /// Dials the listener from this process with the right code, and stops before this side
        /// stores the listener: the listener has then confirmed the pairing. Returns the task of
        /// the dial, which continues when `gate` is opened.
        private func dial(
            _ code: String, heldAt gate: Gate
        ) async throws -> Task<ChannelError?, Never> {
            let store = HookedStore(file: inProcessFile, beforeBinding: { gate.pass() })
            let configuration = try configuration(code, store, name: "alice")
            let endpoint = try Endpoint(parsing: endpoint)
            let dialing = Task(executorPreference: EventLoop.shared) { () -> ChannelError? in
                defer { gate.giveUp() }
                do throws(ChannelError) {
                    let channel = try await SecureChannel.dial(
                        endpoint, configuration: configuration)
                    try? await channel.close()
                    return nil
                } catch {
                    return error
                }
            }
            await gate.wait()
            return dialing
        }

        @Test(
            "on the last try, the failure of another link does not end the listener while the right peer confirms"
        )
        func otherLinkOnLastTry() async throws {
            let (listener, code) = try listen([], shows: "code")
            let wrong = code == "000000" ? "000001" : "000000"
            for _ in 0..<2 { #expect(try dial(["--code", wrong]).status == 69) }
            let gate = Gate()
            let dialing = try await dial(code, heldAt: gate)
            RawSocket.dialing(folder.file("socket")).close()
            // The line names this process; the lines about the wrong codes name other processes.
            _ = try listener.line("blesec: no channel with \(endpoint) (process \(getpid()),")
            gate.open()
            let outcome = try listener.wait()
            #expect(await dialing.value == nil)
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(try knownPeers("alice").keys.sorted() == ["bob"])
        }

        @Test(
            "a listener that ends during the last confirmations says that the two may be paired",
            arguments: ["--timeout", "SIGINT"])
        func listenerEndsTooEarly(cause: String) async throws {
            let isSignal = cause == "SIGINT"
            let (listener, code) = try listen(isSignal ? [] : [cause, "8"], shows: "code")
            let gate = Gate()
            let dialing = try await dial(code, heldAt: gate)
            if isSignal { listener.signal(SIGINT) }
            let outcome = try listener.wait()
            #expect(outcome.status == (isSignal ? 130 : 75), "\(outcome.errors)")
            #expect(outcome.errors.contains("this side and the peer may be paired"))
            #expect(outcome.errors.contains("blesec: interrupted\n") == isSignal)
            #expect(!outcome.errors.contains("nobody has paired"))
            #expect(try knownPeers("alice").isEmpty)
            gate.open()
            _ = await dialing.value
        }

        @Test(
            "if another process gives the name to another key during the pairing, the error says to choose another name"
        )
        func nameTakenMeanwhile() async throws {
            let (listener, code) = try listen([], shows: "code")
            let gate = Gate()
            let dialing = try await dial(code, heldAt: gate)
            let stored = KnownPeersFile(folder.file("alice/known_peers"))
            #expect(try stored.pendingPeers().map(\.isVerified) == [true])
            let other = Fingerprint(subjectPublicKeyInfo: [1])
            try stored.bind("bob", to: other)
            gate.open()
            let outcome = try listener.wait()
            _ = await dialing.value
            #expect(outcome.status == 77 && outcome.text == "", "\(outcome.errors)")
            let error = try #require(outcome.errors.split(separator: "\n").last)
            #expect(error.hasPrefix("blesec: bob is known with \(other)"), "\(error)")
            #expect(error.hasSuffix("choose another name, and pair again"), "\(error)")
            #expect(try stored.pendingPeers().isEmpty)
            #expect(try knownPeers("alice") == ["bob": other])
        }

        /// Listens in this process for one dialer. The store calls `beforeBinding` before it stores
        /// the dialer.
        private func listenInProcess(
            _ code: String, beforeBinding: @escaping @Sendable () throws(ChannelError) -> Void
        ) async throws -> SecureListener {
            let store = HookedStore(file: inProcessFile, beforeBinding: beforeBinding)
            return try await SecureListener.listen(
                on: Endpoint(parsing: endpoint),
                configuration: configuration(code, store, name: "bob"))
        }

        @Test(
            "if the listener cannot store the dialer, the dialer says that the two may be paired, and keeps the listener's key"
        )
        func listenerCannotStore() async throws {
            let listener = try await listenInProcess("123456") { () throws(ChannelError) in
                throw ChannelError(.cannotCreate, "the disk is full")
            }
            let dialer = try dial(["--code", "123456"])
            await listener.close()
            #expect(dialer.status == 75 && dialer.text == "", "\(dialer.errors)")
            #expect(dialer.errors.hasPrefix("blesec: this side and the peer may be paired: "))
            #expect(try knownPeers("bob").keys.sorted() == ["alice"])
            #expect(try inProcessFile.peers().isEmpty)
            #expect(try inProcessFile.pendingPeers().map(\.isVerified) == [true])
        }

        @Test(
            "if a dialer is interrupted before the listener has stored it, the dialer says that the two may be paired",
            .timeLimit(.minutes(1)))
        func dialerInterrupted() async throws {
            let gate = Gate()
            let listener = try await listenInProcess("123456") { gate.pass() }
            let dialer = try Tool.start(
                ["pair", endpoint, "--name", "alice", "--code", "123456"] + state("bob"))
            await gate.wait()
            dialer.signal(SIGINT)
            let outcome = try dialer.wait()
            gate.open()
            await listener.close()
            #expect(outcome.status == 130 && outcome.text == "", "\(outcome.errors)")
            #expect(outcome.errors.hasPrefix("this side and the peer may be paired: "))
            #expect(outcome.errors.hasSuffix("\nblesec: interrupted\n"))
            #expect(try knownPeers("bob").keys.sorted() == ["alice"])
        }

        @Test(
            "a dialer succeeds when the listener acknowledges the dialer's end, even if the channel stays open"
        )
        func listenerKeepsChannel() async throws {
            let listener = try await listenInProcess("123456") {}
            let accepting = Task { try await listener.accept() }
            let dialer = try dial(["--code", "123456"])
            #expect(dialer.status == 0, "\(dialer.errors)")
            let alice = try #require(try knownPeers("bob")["alice"])
            #expect(dialer.text == "paired: alice \(alice)\n")
            await (try accepting.value).abort()
            await listener.close()
        }

        @Test("after a wrong code nothing is pending, and the name is unknown")
        func wrongCodeLeavesNothing() throws {
            let (listener, code) = try listen([], shows: "code")
            let wrong = code == "000000" ? "000001" : "000000"
            #expect(try dial(["--code", wrong]).status == 69)
            let stored = KnownPeersFile(folder.file("bob/known_peers"))
            #expect(try stored.peers().isEmpty && stored.pendingPeers().isEmpty)
            Tool.expect(
                try Tool.run(arguments: ["connect", "peer:alice"] + state("bob")), status: 68,
                "nobody called `alice` is remembered")
            listener.signal(SIGTERM)
            _ = try listener.wait()
        }

        @Test(
            "the time limit includes the wait for a code or an invitation on standard input",
            arguments: ["--code", "--uri"])
        func inputTimeLimit(option: String) throws {
            let outcome = try Tool.start(
                ["pair", endpoint, "--name", "alice", option, "-", "--timeout", "0.5"]
                    + state("bob"), input: .keptOpen
            ).wait()
            Tool.expect(
                outcome, status: 75,
                "nobody has paired in time: begin again while the other side waits\n")
        }

        @Test("an expired invitation pairs nobody, even with a listener that has a new one")
        func oldInvitation() throws {
            let (listener, uri) = try listen(["--uri", "--expires", "1"], shows: "uri")
            let outcome = try listener.wait()
            #expect(outcome.status == 75, "\(outcome.errors)")
            #expect(outcome.errors.contains("nobody has paired in time"))
            // A listener with another invitation does not accept the old one.
            let (nextListener, _) = try listen(["--uri"], shows: "uri")
            let dialer = try dial(["--uri", uri])
            #expect(dialer.status == 76, "\(dialer.errors)")
            nextListener.signal(SIGINT)
            #expect(try nextListener.wait().status == 130)
            #expect(try knownPeers("alice").isEmpty && knownPeers("bob").isEmpty)
        }

        @Test(
            "the side that reads an invitation may have a long time limit, and its error asks for no new invitation"
        )
        func readerTimeLimit() throws {
            let (listener, uri) = try listen(["--uri"], shows: "uri")
            listener.signal(SIGINT)
            #expect(try listener.wait().status == 130)
            func read(_ limit: String) throws -> Subprocess.Outcome {
                try Tool.run(
                    arguments: [
                        "pair", "unix:\(folder.file("silent"))", "--name", "alice", "--uri", uri,
                        "--timeout", limit,
                    ] + state("bob"))
            }
            // Nobody listens yet.
            Tool.expect(try read("600"), status: 68, "no such path")
            let silent = RawSocket.listening(at: folder.file("silent"))
            let outcome = try read("0.5")
            silent.close()
            #expect(outcome.status == 75, "\(outcome.errors)")
            #expect(outcome.errors.contains("in time: begin again while the other side waits\n"))
        }

        @Test("wrong or contradictory arguments are refused, and no identity is stored")
        func usage() throws {
            for (arguments, status, reason) in [
                (["pair"], Int32(64), "--name is missing"),
                (["pair", "--name", ""], 64, "the value of --name is empty"),
                (["pair", "--name", "x", "--code", "12"], 65, "4 to 12 digits"),
                (["pair", "--name", "x", "--uri", "blesec:pair?v=9"], 65, "no invitation"),
                (["pair", "--name", "x", "--code", "1234", "--uri"], 64, "exclude each other"),
                (["pair", "--name", "x", "--png", "f"], 64, "goes with a new invitation"),
                (["pair", "--name", "x", "--digits", "3"], 64, "4 to 12"),
                (["pair", endpoint, "--name", "x", "--uri"], 64, "give --listen"),
                (["pair", endpoint, "--name", "x"], 64, "the side that shows a code waits"),
                (["pair", endpoint, "--name", "x", "--code"], 64, "give --listen, or the other"),
                (["pair", "peer:x", "--name", "x"], 64, "no name"),
                (["pair", "--name", "x", "--listen"], 64, "goes with an endpoint"),
                (["pair", endpoint, "--name", "x", "--heard", "2"], 64, "with an endpoint"),
                (
                    ["pair", endpoint, "--listen", "--name", "x", "--uri", "--timeout", "600"], 64,
                    "the 120 seconds for which the invitation is valid: use --expires"
                ),
            ] {
                let outcome = try Tool.run(arguments: arguments + state("none"))
                #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
                #expect(outcome.errors.contains(reason), "\(outcome.errors)")
            }
            #expect(folder.read("none/identity") == nil)
        }

        @Test("an invitation in the wrong place is refused, and not printed")
        func misplacedInvitation() throws {
            let key = Fingerprint(digest: [UInt8](repeating: 1, count: 32))
            let uri = PairingInvitation(from: key, now: 0).uri
            for arguments in [
                [uri], ["connect", uri], ["pair", "--name", "bob", uri], ["scan", uri],
                ["listen", endpoint, "--peer", uri], ["connect", endpoint, "--timeout=\(uri)"],
                ["peers", "show", uri], ["send", uri, endpoint],
            ] {
                let outcome = try Tool.run(arguments: arguments)
                Tool.expect(outcome, status: 64, "an invitation to pair, which contains a secret")
                #expect(!outcome.errors.contains("secret="), "\(outcome.errors)")
            }
        }

        @Test("with --json, the code and the result are objects")
        func json() throws {
            let listener = try Tool.start(
                ["pair", endpoint, "--listen", "--name", "bob", "--json"] + state("alice"))
            let line = try listener.line(#"{"event": "code""#)
            let code = String(line.filter(\.isNumber))
            let dialer = try dial(["--code", code, "--json"])
            let outcome = try listener.wait()
            let key = try #require(try knownPeers("alice")["bob"])
            #expect(outcome.text == "{\"paired\": \"bob\", \"fingerprint\": \"\(key)\"}\n")
            #expect(dialer.status == 0)
        }
    }
}

/// A file of known peers that calls a function before it binds a name.
private struct HookedStore: TrustStore {
    let file: KnownPeersFile
    /// If it throws, the name is not bound.
    let beforeBinding: @Sendable () throws(ChannelError) -> Void

    func key(named name: String) throws(ChannelError) -> Fingerprint? { try file.key(named: name) }
    func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { try file.contains(key) }

    func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
        try beforeBinding()
        try file.bind(name, to: key)
    }

    func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer? {
        try file.pendingPeer(key)
    }

    func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
        try file.keepPending(peer)
    }

    func forgetPending(_ key: Fingerprint) throws(ChannelError) { try file.forgetPending(key) }
}

/// Stops a thread until the test opens the gate, at most 20 s.
@safe private final class Gate: @unchecked Sendable {
    // Sendable because the pointer does not change, and the system synchronizes the semaphore.
    private let semaphore: UnsafeMutablePointer<sem_t>
    private let arrivals: AsyncStream<Void>
    private let arrival: AsyncStream<Void>.Continuation

    init() {
        unsafe semaphore = .allocate(capacity: 1)
        (arrivals, arrival) = AsyncStream.makeStream()
        unsafe sem_init(semaphore, 0, 0)
    }

    deinit {
        unsafe sem_destroy(semaphore)
        unsafe semaphore.deallocate()
    }

    /// Reports the arrival of a thread, and waits until the gate is opened.
    func pass() {
        arrival.yield()
        var limit = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &limit)
        limit.tv_sec += 20
        unsafe sem_timedwait(semaphore, &limit)
    }

    /// Ends ``wait()``, since no thread arrives any more.
    func giveUp() { arrival.finish() }
    /// Returns when a thread has arrived.
    func wait() async { for await _ in arrivals { return } }
    /// Lets one thread pass.
    func open() { unsafe sem_post(semaphore) }
}
