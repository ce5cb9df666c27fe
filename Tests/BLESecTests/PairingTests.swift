import BLESecChannelCore
import BLESecCredentials
import BLESecLinks
import BLESecLocking
import BLESecTesting
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// Channels that pair: with real handshakes and files of known peers, also over links that are cut.
@Suite("Pairing", .serialized, .timeLimit(.minutes(5)))
struct PairingTests {
    /// How two devices pair.
    enum Way: String, CaseIterable, CustomTestStringConvertible {
        case invitation, code, comparison, codeOverTLS
        var testDescription: String { rawValue }
    }

    /// A device: its identity, its TLS certificate, and its file of known peers.
    struct Device {
        let identity: IdentityKey
        let tls: TLSContext
        let store: KnownPeersFile

        init(_ folder: ScratchFolder, _ name: String) throws {
            identity = try IdentityKey.generate()
            store = KnownPeersFile(folder.file(name))
            let contexts = try Self.contexts.get()
            tls = name.hasPrefix("alice") ? contexts.0 : contexts.1
        }

        /// Two self-signed certificates. Each takes a run of `openssl`, so all tests share them.
        private static let contexts = Result {
            let authority = try TestAuthority()
            return (
                try authority.selfSignedContext("alice"), try authority.selfSignedContext("bob")
            )
        }

        func fingerprint(_ way: Way) -> Fingerprint {
            way == .codeOverTLS ? tls.identity.fingerprint : identity.fingerprint
        }

        /// The keys in the file of known peers, by the peers' names.
        func keysByName() throws -> [String: Fingerprint] {
            Dictionary(
                try store.peers().map { ($0.name, $0.key) }, uniquingKeysWith: { first, _ in first }
            )
        }
    }

    /// Two devices on a loop with a real clock, since their stores answer on other threads.
    final class Meeting: Sendable {
        let folder = ScratchFolder()
        let alice: Device
        let bob: Device
        let loop = EventLoop(name: "pairing")

        init() throws {
            alice = try Device(folder, "alice.peers")
            bob = try Device(folder, "bob.peers")
        }

        /// What each side needs to pair in this way: Alice dials, and Bob listens.
        func pairings(
            _ way: Way
        ) throws -> (dialer: TrustPolicy.Pairing, acceptor: TrustPolicy.Pairing) {
            switch way {
            case .invitation:
                let offered = PairingInvitation(from: bob.identity.fingerprint, now: 1_800_000_000)
                return (
                    .invitation(try PairingInvitation(parsing: offered.uri)), .invitation(offered)
                )
            case .code, .codeOverTLS:
                let offered = TrustPolicy.PairingCode()
                return (.code(try TrustPolicy.PairingCode(offered.digits)), .code(offered))
            case .comparison:
                let shown = Locked<[String]>([])
                let confirm: @Sendable (String) async -> Bool = { digits in
                    shown.withLock { $0.append(digits) }
                    return shown.withLock { $0.allSatisfy { $0 == digits } }
                }
                return (.comparison(confirm: confirm), .comparison(confirm: confirm))
            }
        }

        func configuration(
            _ device: Device, _ pairing: TrustPolicy.Pairing, _ way: Way, name: String
        ) -> ChannelConfiguration {
            var configuration = ChannelConfiguration(
                identity: device.identity,
                trust: .pairing(pairing, store: device.store, name: name))
            if way == .codeOverTLS {
                configuration.tls = device.tls
                configuration.protocols = [TLSContext.protocolName]
            }
            configuration.timeouts.ready = .seconds(3)
            return configuration
        }

        /// Opens a channel on both sides, and returns each side's channel or error. `faults` has
        /// the faults of each side's end of the link.
        func meet(
            _ dialer: ChannelConfiguration, _ acceptor: ChannelConfiguration,
            _ faults: [ChannelRole: [Fault]] = [:]
        ) async -> [ChannelRole: Result<SecureChannel, ChannelError>] {
            let (first, second) = await loop.run { [loop] in
                let (first, second) = MemoryLink.pair(
                    loop: loop, capacity: 65_536, dropsQueueOnClose: true)
                return (
                    FaultyLink(first, faults[.dialer, default: []]),
                    FaultyLink(second, faults[.acceptor, default: []])
                )
            }
            let dialing = opening(first, .dialer, dialer)
            let accepting = opening(second, .acceptor, acceptor)
            return [.dialer: await dialing.value, .acceptor: await accepting.value]
        }

        private func opening(
            _ link: FaultyLink, _ role: ChannelRole, _ configuration: ChannelConfiguration
        ) -> Task<Result<SecureChannel, ChannelError>, Never> {
            Task(executorPreference: loop) {
                let channel = SecureChannel(over: link, role: role, configuration: configuration)
                do throws(ChannelError) {
                    try await channel.open()
                    return .success(channel)
                } catch {
                    return .failure(error)
                }
            }
        }

        func pair(
            _ way: Way, _ faults: [ChannelRole: [Fault]] = [:]
        ) async throws -> [ChannelRole: Result<SecureChannel, ChannelError>] {
            let pairings = try pairings(way)
            return await meet(
                configuration(alice, pairings.dialer, way, name: "bob"),
                configuration(bob, pairings.acceptor, way, name: "alice"), faults)
        }

        func knowEachOther(_ way: Way) throws -> Bool {
            try alice.keysByName() == ["bob": bob.fingerprint(way)]
                && bob.keysByName() == ["alice": alice.fingerprint(way)]
                && alice.store.pendingPeers().isEmpty && bob.store.pendingPeers().isEmpty
        }
    }

    static func errorCode(_ result: Result<SecureChannel, ChannelError>?) -> ChannelError.Code? {
        if case .failure(let error) = result { error.code } else { nil }
    }

    /// The key of the peer that was refused, or that has refused.
    static func claimedKey(_ result: Result<SecureChannel, ChannelError>?) -> Fingerprint? {
        if case .failure(let error) = result { error.claimed?.fingerprint } else { nil }
    }

    @Test(
        "two devices pair, both know each other, and the channel carries messages",
        arguments: Way.allCases)
    func pairs(way: Way) async throws {
        let meeting = try Meeting()
        let results = try await meeting.pair(way)
        let dialer = try #require(try results[.dialer]?.get())
        let acceptor = try #require(try results[.acceptor]?.get())
        #expect(try meeting.knowEachOther(way))
        let expected = meeting.bob.fingerprint(way)
        #expect(await dialer.peer.fingerprint == expected)
        try await dialer.send([1, 2, 3])
        #expect(try await acceptor.receive() == [1, 2, 3])
        #expect(await dialer.protocolName.contains("XXpsk3") == (way == .invitation))
        await dialer.abort()
        await acceptor.abort()
        await meeting.loop.shutdown()
    }

    @Test(
        "wherever the link is lost, the acceptor is never the only side that is paired, and the next meeting completes the pairing",
        arguments: Way.allCases, [ChannelRole.dialer, .acceptor])
    func cuts(way: Way, cutter: ChannelRole) async throws {
        // The cuts are `step` bytes apart. With Noise, each record of the pairing has at least 20
        // bytes, so a cut lies in each record. With TLS, the handshake is longer, so the cuts are
        // farther apart, and may miss a short record.
        let step = way == .codeOverTLS ? 61 : 19
        var errorCounts: [ChannelError.Code: Int] = [:]
        var offset = 0
        var isComplete = false
        while !isComplete {
            let meeting = try Meeting()
            let results = try await meeting.pair(way, [cutter: [.cut(afterBytes: offset)]])
            for role in [ChannelRole.dialer, .acceptor] {
                if let error = Self.errorCode(results[role]) { errorCounts[error, default: 0] += 1 }
            }
            let dialerError = Self.errorCode(results[.dialer])
            let acceptorError = Self.errorCode(results[.acceptor])
            let (aliceKnows, bobKnows) = (
                try meeting.alice.keysByName() == ["bob": meeting.bob.fingerprint(way)],
                try meeting.bob.keysByName() == ["alice": meeting.alice.fingerprint(way)]
            )
            // A side succeeds exactly when it has stored the other side.
            #expect(
                aliceKnows == (dialerError == nil), "\(offset): \(String(describing: dialerError))")
            #expect(
                bobKnows == (acceptorError == nil),
                "\(offset): \(String(describing: acceptorError))")
            // The dialer is the first to store its peer.
            #expect(aliceKnows || !bobKnows)
            if aliceKnows != bobKnows { #expect(acceptorError == .mayBePaired) }
            for (error, device) in [(dialerError, meeting.alice), (acceptorError, meeting.bob)]
            where error != nil {
                // A failed side keeps its peer as pending only if it reports `mayBePaired`.
                let pending = try device.store.pendingPeers()
                #expect(pending.isEmpty || error == .mayBePaired)
            }
            isComplete = dialerError == nil && acceptorError == nil
            if !isComplete {
                let laterResults = try await meeting.pair(way)
                for role in [ChannelRole.dialer, .acceptor] {
                    #expect(
                        Self.errorCode(laterResults[role]) == nil,
                        "\(offset): \(String(describing: laterResults[role]))")
                }
            }
            try #require(try meeting.knowEachOther(way), "\(offset)")
            await meeting.loop.shutdown()
            offset += step
            try #require(offset < 20_000)
        }
        #expect(errorCounts[.mayBePaired, default: 0] > 0, "\(errorCounts)")
        #expect(errorCounts[.truncated, default: 0] > 0)
    }

    @Test(
        "a wrong code is reported on both sides with the peer's key, and neither side stores the other, not even as pending",
        arguments: [Way.code, .codeOverTLS])
    func wrongCode(way: Way) async throws {
        let meeting = try Meeting()
        let results = await meeting.meet(
            meeting.configuration(
                meeting.alice, .code(try TrustPolicy.PairingCode("123456")), way, name: "bob"),
            meeting.configuration(
                meeting.bob, .code(try TrustPolicy.PairingCode("123450")), way, name: "alice"))
        #expect(Self.errorCode(results[.acceptor]) == .untrusted)
        #expect(Self.errorCode(results[.dialer]) == .refused)
        #expect(Self.claimedKey(results[.acceptor]) == meeting.alice.fingerprint(way))
        #expect(Self.claimedKey(results[.dialer]) == meeting.bob.fingerprint(way))
        #expect(try meeting.alice.keysByName().isEmpty && meeting.bob.keysByName().isEmpty)
        // Alice had stored Bob as pending, and removed the entry when he refused.
        #expect(try meeting.alice.store.pendingPeers().isEmpty)
        #expect(try meeting.bob.store.pendingPeers().isEmpty)
        await meeting.loop.shutdown()
    }

    @Test(
        "a pairing that fails before it stores anything leaves the pending entry of an earlier pairing in place"
    )
    func earlierPendingKey() async throws {
        let meeting = try Meeting()
        let earlier = TrustPolicy.PendingPeer(
            name: "bob", key: meeting.bob.fingerprint(.code),
            transcript: [UInt8](repeating: 7, count: TrustPolicy.PendingPeer.transcriptLength),
            isVerified: true)
        try meeting.alice.store.keepPending(earlier)
        // Both sides refuse, because they pair in different ways.
        let results = await meeting.meet(
            meeting.configuration(
                meeting.alice, .code(TrustPolicy.PairingCode()), .code, name: "bob"),
            meeting.configuration(
                meeting.bob, .comparison { _ in true }, .comparison, name: "alice"))
        #expect(Self.errorCode(results[.dialer]) == .untrusted)
        #expect(Self.errorCode(results[.acceptor]) == .untrusted)
        #expect(try meeting.alice.store.pendingPeers() == [earlier])
        await meeting.loop.shutdown()
    }

    @Test(
        "a side that cannot store its peer reports `mayBePaired`; it sends no `reject` to a peer whose session has begun, and so the peer sees a lost link",
        arguments: [ChannelRole.dialer, .acceptor])
    func cannotStore(role: ChannelRole) async throws {
        let meeting = try Meeting()
        let (device, peer) =
            role == .dialer ? (meeting.alice, meeting.bob) : (meeting.bob, meeting.alice)
        let (deviceName, peerName) = role == .dialer ? ("alice", "bob") : ("bob", "alice")
        // In an earlier pairing, the peer has stored this side, and this side only keeps the peer as
        // pending. So the peer sends `done` at once, and its session begins before this side tries to
        // store the peer.
        try device.store.keepPending(
            TrustPolicy.PendingPeer(
                name: peerName, key: peer.fingerprint(.code),
                transcript: [UInt8](repeating: 7, count: TrustPolicy.PendingPeer.transcriptLength),
                isVerified: true))
        try peer.store.bind(deviceName, to: device.fingerprint(.code))
        let pairings = try meeting.pairings(.code)
        let (ownPairing, peerPairing) =
            role == .dialer
            ? (pairings.dialer, pairings.acceptor) : (pairings.acceptor, pairings.dialer)
        var failingConfiguration = meeting.configuration(device, ownPairing, .code, name: peerName)
        failingConfiguration.trust = .pairing(
            ownPairing, store: FullDiskStore(file: device.store), name: peerName)
        let peerConfiguration = meeting.configuration(
            peer, peerPairing, .code, name: deviceName)
        let results =
            role == .dialer
            ? await meeting.meet(failingConfiguration, peerConfiguration)
            : await meeting.meet(peerConfiguration, failingConfiguration)
        #expect(Self.errorCode(results[role]) == .mayBePaired)
        let peerChannel = try #require(try results[role.peer]?.get())
        let error = await #expect(throws: ChannelError.self) { _ = try await peerChannel.receive() }
        #expect(error?.code == .truncated)
        await meeting.loop.shutdown()
    }

    /// A store that keeps pending peers, and cannot bind a name.
    private struct FullDiskStore: TrustStore {
        let file: KnownPeersFile
        func key(named name: String) throws(ChannelError) -> Fingerprint? {
            try file.key(named: name)
        }
        func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { try file.contains(key) }
        func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
            throw ChannelError(.cannotCreate, "the disk is full")
        }
        func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer? {
            try file.pendingPeer(key)
        }
        func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
            try file.keepPending(peer)
        }
        func forgetPending(_ key: Fingerprint) throws(ChannelError) { try file.forgetPending(key) }
    }

    @Test(
        "if only one of two sides wants to pair, both refuse, and the dialer's error mentions pairing"
    )
    func onlyOneSide() async throws {
        let meeting = try Meeting()
        let aliceConfiguration = meeting.configuration(
            meeting.alice, .code(TrustPolicy.PairingCode()), .code, name: "bob")
        let bobConfiguration = ChannelConfiguration(
            identity: meeting.bob.identity, trust: .anyone)
        for (dialer, acceptor) in [
            (aliceConfiguration, bobConfiguration), (bobConfiguration, aliceConfiguration),
        ] {
            let results = await meeting.meet(dialer, acceptor)
            #expect(Self.errorCode(results[.dialer]) == .noCommonProtocol)
            #expect([.noCommonProtocol, .truncated].contains(Self.errorCode(results[.acceptor])))
            if case .failure(let error) = results[.dialer] {
                #expect(error.reason.contains("pair"))
            }
        }
        await meeting.loop.shutdown()
    }

    @Test(
        "an invitation admits only the first key that comes with the invitation's secret; a key with a wrong secret does not count"
    )
    func invitations() async throws {
        let meeting = try Meeting()
        let offered = PairingInvitation(from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let scanned = try PairingInvitation(parsing: offered.uri)
        let eve = try Device(meeting.folder, "eve.peers")
        let bobConfiguration = meeting.configuration(
            meeting.bob, .invitation(offered), .invitation, name: "alice")
        // Eve knows the inviter's key, and not the secret.
        let otherInvitation = PairingInvitation(
            from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let guess = try PairingInvitation(parsing: otherInvitation.uri)
        let guessResults = await meeting.meet(
            meeting.configuration(eve, .invitation(guess), .invitation, name: "bob"),
            bobConfiguration)
        #expect(Self.errorCode(guessResults[.acceptor]) == .authenticationFailed)
        #expect(Self.errorCode(guessResults[.dialer]) == .truncated)
        #expect(offered.strangers.isEmpty)
        // Alice begins, and loses the link after the handshake.
        let aliceConfiguration = meeting.configuration(
            meeting.alice, .invitation(scanned), .invitation, name: "bob")
        _ = await meeting.meet(
            aliceConfiguration, bobConfiguration, [.acceptor: [.cut(afterBytes: 200)]])
        // Eve has now seen the invitation.
        let eveConfiguration = meeting.configuration(
            eve, .invitation(try PairingInvitation(parsing: offered.uri)), .invitation, name: "bob")
        let stolenResults = await meeting.meet(eveConfiguration, bobConfiguration)
        #expect(Self.errorCode(stolenResults[.acceptor]) == .untrusted)
        #expect(offered.strangers == [eve.identity.fingerprint])
        // Alice may try again, since her key was the first.
        let results = await meeting.meet(aliceConfiguration, bobConfiguration)
        #expect(
            Self.errorCode(results[.dialer]) == nil && Self.errorCode(results[.acceptor]) == nil)
        #expect(try meeting.knowEachOther(.invitation))
        let lateResults = await meeting.meet(eveConfiguration, bobConfiguration)
        #expect(
            Self.errorCode(lateResults[.acceptor]) == .untrusted
                && Self.errorCode(lateResults[.dialer]) == .refused)
        #expect(Self.claimedKey(lateResults[.dialer]) == meeting.bob.identity.fingerprint)
        await meeting.loop.shutdown()
    }

    @Test(
        "a middleman without an invitation's secret pairs with neither side, even if he has both sides' private keys",
        arguments: [true, false])
    func middlemanWithoutSecret(hasKeys: Bool) async throws {
        let meeting = try Meeting()
        let offered = PairingInvitation(from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let scanned = try PairingInvitation(parsing: offered.uri)
        let mallory = try Device(meeting.folder, "mallory.peers")
        // Mallory is between Alice and Bob, and plays Bob to Alice, and Alice to Bob.
        let (shownToAlice, shownToBob) = hasKeys ? (meeting.bob, meeting.alice) : (mallory, mallory)
        func malloryConfiguration(_ identity: IdentityKey, _ pairing: TrustPolicy.Pairing)
            -> ChannelConfiguration
        {
            var configuration = ChannelConfiguration(
                identity: identity, trust: .pairing(pairing, store: mallory.store, name: "victim"))
            configuration.timeouts.ready = .seconds(3)
            return configuration
        }
        let aliceConfiguration = meeting.configuration(
            meeting.alice, .invitation(scanned), .invitation, name: "bob")
        let bobConfiguration = meeting.configuration(
            meeting.bob, .invitation(offered), .invitation, name: "alice")
        let mallorysInvitation = PairingInvitation(
            from: shownToAlice.identity.fingerprint, now: 1_800_000_000)
        let firstResults = await meeting.meet(
            aliceConfiguration,
            malloryConfiguration(shownToAlice.identity, .invitation(mallorysInvitation)))
        // If Mallory shows another key than Bob's, Alice refuses it before she sends hers. If he
        // shows Bob's key, he still cannot read Alice's key without the secret.
        #expect(Self.errorCode(firstResults[.dialer]) == (hasKeys ? .truncated : .untrusted))
        #expect(
            Self.claimedKey(firstResults[.dialer]) == (hasKeys ? nil : mallory.identity.fingerprint)
        )
        #expect(
            Self.errorCode(firstResults[.acceptor])
                == (hasKeys ? .authenticationFailed : .truncated))
        let otherInvitation = PairingInvitation(
            from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let guess = TrustPolicy.Pairing.invitation(
            try PairingInvitation(parsing: otherInvitation.uri))
        let secondResults = await meeting.meet(
            malloryConfiguration(shownToBob.identity, guess), bobConfiguration)
        #expect(Self.errorCode(secondResults[.acceptor]) == .authenticationFailed)
        #expect(Self.errorCode(secondResults[.dialer]) == .truncated)
        // Nothing is stored, no stranger has shown the secret, and Alice and Bob can still pair.
        #expect(try meeting.alice.keysByName().isEmpty && meeting.bob.keysByName().isEmpty)
        for store in [meeting.alice.store, meeting.bob.store] {
            #expect(try store.pendingPeers().isEmpty)
        }
        #expect(offered.strangers.isEmpty)
        let results = await meeting.meet(aliceConfiguration, bobConfiguration)
        #expect(
            Self.errorCode(results[.dialer]) == nil && Self.errorCode(results[.acceptor]) == nil)
        #expect(try meeting.knowEachOther(.invitation))
        await meeting.loop.shutdown()
    }

    @Test("control: with the invitation's secret, a stranger pairs in place of the invited person")
    func middlemanWithSecret() async throws {
        let meeting = try Meeting()
        let offered = PairingInvitation(from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let mallory = try Device(meeting.folder, "mallory.peers")
        let scanned = try PairingInvitation(parsing: offered.uri)
        let results = await meeting.meet(
            meeting.configuration(mallory, .invitation(scanned), .invitation, name: "bob"),
            meeting.configuration(meeting.bob, .invitation(offered), .invitation, name: "alice"))
        #expect(
            Self.errorCode(results[.dialer]) == nil && Self.errorCode(results[.acceptor]) == nil)
        #expect(try meeting.bob.keysByName() == ["alice": mallory.identity.fingerprint])
        // Alice comes too late: Mallory's key was the first, so Bob refuses Alice's.
        let lateResults = await meeting.meet(
            meeting.configuration(
                meeting.alice, .invitation(try PairingInvitation(parsing: offered.uri)),
                .invitation,
                name: "bob"),
            meeting.configuration(meeting.bob, .invitation(offered), .invitation, name: "alice"))
        #expect(
            Self.errorCode(lateResults[.dialer]) == .refused
                && Self.errorCode(lateResults[.acceptor]) == .untrusted)
        await meeting.loop.shutdown()
    }

    @Test(
        "pairing that contradicts the role, the mode or the protocols is refused before anything is sent"
    )
    func contradictions() throws {
        let meeting = try Meeting()
        let offered = PairingInvitation(
            from: meeting.alice.identity.fingerprint, now: 1_800_000_000)
        let bobsInvitation = PairingInvitation(
            from: meeting.bob.identity.fingerprint, now: 1_800_000_000)
        let scanned = try PairingInvitation(parsing: bobsInvitation.uri)
        func refuses(
            _ pairing: TrustPolicy.Pairing, _ role: ChannelRole,
            _ change: (inout ChannelConfiguration) -> Void = { _ in }
        ) -> Bool {
            var configuration = meeting.configuration(meeting.alice, pairing, .code, name: "bob")
            change(&configuration)
            do throws(ChannelError) {
                try configuration.validate(for: role)
                return false
            } catch {
                return error.code == .configuration
            }
        }
        #expect(
            !refuses(.invitation(offered), .acceptor) && !refuses(.invitation(scanned), .dialer))
        #expect(refuses(.invitation(offered), .dialer) && refuses(.invitation(scanned), .acceptor))
        #expect(
            refuses(.invitation(offered), .acceptor) {
                $0.protocols = ["Noise_IK_25519_ChaChaPoly_SHA256"]
            })
        #expect(refuses(.invitation(bobsInvitation), .acceptor))
        for (protocolName, role) in [
            ("Noise_NX_25519_ChaChaPoly_SHA256", ChannelRole.dialer),
            ("Noise_NX_25519_ChaChaPoly_SHA256", .acceptor),
            ("Noise_XN_25519_ChaChaPoly_SHA256", .acceptor),
        ] {
            #expect(
                refuses(.code(TrustPolicy.PairingCode()), role) {
                    $0.protocols = [protocolName]
                    $0.identity = role == .dialer ? nil : $0.identity
                })
        }
        #expect(refuses(.code(TrustPolicy.PairingCode()), .dialer) { $0.mode = .direct })
        #expect(
            refuses(.code(TrustPolicy.PairingCode()), .dialer) {
                $0.certificateTrust = .authority()
            })
    }

    /// Dials a pairing listener as `device`. Returns the error; nil if the device is paired.
    private func dial(
        _ meeting: Meeting, _ endpoint: Endpoint, _ code: String, as device: Device
    ) async throws -> ChannelError? {
        let pairing = TrustPolicy.Pairing.code(try TrustPolicy.PairingCode(code))
        let configuration = meeting.configuration(device, pairing, .code, name: "bob")
        do throws(ChannelError) {
            let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
            await channel.abort()
            return nil
        } catch {
            return error
        }
    }

    /// Listens as Bob. Bob waits at most `limit` for each record of a pairing.
    private func listen(
        _ meeting: Meeting, _ code: TrustPolicy.PairingCode, limit: Duration = .seconds(3)
    ) async throws -> SecureListener {
        var configuration = meeting.configuration(meeting.bob, .code(code), .code, name: "alice")
        configuration.timeouts.ready = limit
        return try await SecureListener.listen(
            on: Endpoint(parsing: "unix:\(meeting.folder.file("socket"))"),
            configuration: configuration)
    }

    @Test(
        "if two devices use the same code at once, one is paired, and the other gets an error")
    func atOnce() async throws {
        for _ in 0..<5 {
            let meeting = try Meeting()
            let code = TrustPolicy.PairingCode()
            let listener = try await listen(meeting, code)
            let devices = [try Device(meeting.folder, "one"), try Device(meeting.folder, "two")]
            async let first = dial(
                meeting, listener.localEndpoint, code.digits, as: devices[0])
            async let second = dial(
                meeting, listener.localEndpoint, code.digits, as: devices[1])
            let accepted = try await listener.accept()
            let errors = [try await first, try await second]
            let winners = errors.indices.filter { errors[$0] == nil }
            #expect(winners.count == 1, "\(errors)")
            for case let error? in errors {
                #expect([.refused, .mayBePaired].contains(error.code), "\(error)")
            }
            let bobsKeys = try meeting.bob.keysByName()
            #expect(bobsKeys.count == 1)
            #expect(winners.map { devices[$0].identity.fingerprint } == Array(bobsKeys.values))
            await accepted.abort()
            await listener.close()
            await meeting.loop.shutdown()
        }
    }

    /// A store that keeps pending peers in a file. Its other calls go to `slow`, and can wait there.
    private struct BlockingStore: TrustStore {
        let slow: StoreTests.SlowStore
        let file: KnownPeersFile
        func key(named name: String) throws(ChannelError) -> Fingerprint? {
            try slow.key(named: name)
        }
        func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { try slow.contains(key) }
        func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
            try slow.bind(name, to: key)
        }
        func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer? {
            try file.pendingPeer(key)
        }
        func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
            try file.keepPending(peer)
        }
        func forgetPending(_ key: Fingerprint) throws(ChannelError) { try file.forgetPending(key) }
    }

    @Test(
        "a listener that is closed during a pairing's last confirmations reports `mayBePaired`, and does not report a handshake that it cancels"
    )
    func closedListener() async throws {
        let meeting = try Meeting()
        let code = TrustPolicy.PairingCode()
        // The limit is long because Alice sends no further record while the test waits for Eve.
        let listener = try await listen(meeting, code, limit: .seconds(30))
        let failures = await listener.failures()
        var dials: [Task<ChannelError.Code?, Never>] = []
        var stores: [StoreTests.SlowStore] = []
        // Alice's store does not return from `bind`: she has Bob's confirmation, and does not answer
        // it. Eve's store does not return from `key`: she does not continue the handshake.
        for (name, call) in [("alice", "bind"), ("eve", "key")] {
            let device = try Device(meeting.folder, "\(name).blocking")
            let slow = StoreTests.SlowStore(slow: call)
            let pairing = TrustPolicy.Pairing.code(try TrustPolicy.PairingCode(code.digits))
            var configuration = meeting.configuration(device, pairing, .code, name: "bob")
            configuration.trust = .pairing(
                pairing, store: BlockingStore(slow: slow, file: device.store), name: "bob")
            let dialing = Task(executorPreference: meeting.loop) {
                [configuration, endpoint = listener.localEndpoint] () -> ChannelError.Code? in
                do throws(ChannelError) {
                    let channel = try await SecureChannel.dial(
                        endpoint, configuration: configuration)
                    await channel.abort()
                    return nil
                } catch {
                    return error.code
                }
            }
            while !Task.isCancelled, !slow.begun.withLock({ $0.contains(call) }) {
                await Task.yield()
            }
            dials.append(dialing)
            stores.append(slow)
        }
        #expect(await listener.load.handshakes == 2)
        await listener.close()
        #expect(await listener.load.handshakes == 0)
        var codes: [ChannelError.Code] = []
        for await failure in failures { codes.append(failure.error.code) }
        #expect(codes == [.mayBePaired])
        #expect(try meeting.bob.store.pendingPeers().map(\.isVerified) == [true])
        for store in stores { store.release(8) }
        for dial in dials { _ = await dial.value }
        await meeting.loop.shutdown()
    }

    @Test(
        "a listener that is closed reports a peer that is paired and whose channel nobody has taken",
        .timeLimit(.minutes(1)))
    func closedBeforeAccept() async throws {
        let meeting = try Meeting()
        let code = TrustPolicy.PairingCode()
        let listener = try await listen(meeting, code)
        let failures = await listener.failures()
        let pairing = TrustPolicy.Pairing.code(try TrustPolicy.PairingCode(code.digits))
        let dialed = try await SecureChannel.dial(
            listener.localEndpoint,
            configuration: meeting.configuration(meeting.alice, pairing, .code, name: "bob"))
        while !Task.isCancelled, await listener.load.ready == 0 { await Task.yield() }
        await listener.close()
        var codes: [ChannelError.Code] = []
        for await failure in failures { codes.append(failure.error.code) }
        #expect(codes == [.mayBePaired])
        #expect(try meeting.knowEachOther(.code))
        await dialed.abort()
        await meeting.loop.shutdown()
    }

    @Test("a third device uses up the tries with guesses, and then the right code is refused, too")
    func interference() async throws {
        let meeting = try Meeting()
        let code = try TrustPolicy.PairingCode("123456")
        let listener = try await listen(meeting, code)
        let failures = await listener.failures()
        let eve = try Device(meeting.folder, "eve")
        for guess in ["000000", "000001", "000002"] {
            #expect(
                try await dial(meeting, listener.localEndpoint, guess, as: eve)?.code == .refused)
        }
        #expect(code.triesLeft == 0)
        let aliceError = try await dial(
            meeting, listener.localEndpoint, "123456", as: meeting.alice)
        #expect(aliceError?.code == .refused)
        var reasons: [String] = []
        for await failure in failures.prefix(4) { reasons.append(failure.error.reason) }
        #expect(reasons.prefix(3).allSatisfy { $0.contains("the codes differ") }, "\(reasons)")
        #expect(reasons.last?.contains("was tried 3 times") == true)
        #expect(try meeting.bob.keysByName().isEmpty && meeting.alice.keysByName().isEmpty)
        await listener.close()
        await meeting.loop.shutdown()
    }
}
