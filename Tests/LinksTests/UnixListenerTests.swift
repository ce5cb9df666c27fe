import BLESecLinks
import BLESecTesting
import Glibc
import Testing

@Suite struct UnixListenerTests {
    @Test(
        "a dialed link and an accepted link are connected",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func connects(_ kind: UnixAddress.Kind) async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath(), kind: kind)
            let listener = try await UnixListener.listen(address, loop: loop)
            #expect(listener.localDescription == address.description)
            async let accepted = listener.accept()
            let dialed = try await SocketLink.dial(address, loop: loop)
            let peer = try await accepted
            try #expect(dialed.send([1, 2]) == 2)
            try #expect(peer.receive().bytes == [1, 2])
            #expect(peer.peerDescription.contains("process \(getpid())"))
            #expect(dialed.peerDescription == address.description)
            dialed.close()
            try #expect(peer.receive().outcome == .end)
            await listener.close()
            #expect(!exists(address.path))
        }
    }

    @Test("a socket's file has mode 0600 by default, and otherwise the requested owner permissions")
    func permissions() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, loop: loop)
            #expect(mode(address.path) == 0o600)
            await listener.close()
            // The umask may take the group's permissions away, but not the owner's.
            let forGroup = try await UnixListener.listen(address, permissions: 0o660, loop: loop)
            #expect((mode(address.path) ?? 0) & 0o600 == 0o600)
            await forGroup.close()
            let readable = try await UnixListener.listen(address, permissions: 0o400, loop: loop)
            #expect(mode(address.path) == 0o400)
            await readable.close()
        }
    }

    @Test("a socket file that a crash left behind is replaced")
    func stale() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            try await makeStaleSocket(address, loop: loop)
            #expect(exists(address.path))
            let second = try await UnixListener.listen(address, loop: loop)
            async let accepted = second.accept()
            let dialed = try await SocketLink.dial(address, loop: loop)
            _ = try await accepted
            dialed.close()
            await second.close()
        }
    }

    @Test("a listener takes a free path even if its folder stays locked and the loop's clock stops")
    func lockedFolder() async throws {
        let clock = ManualClock()
        let loop = EventLoop(name: "test", clock: clock.loopClock)
        let folder = temporaryPath()
        try #require(unsafe mkdir(folder, 0o700) == 0)
        defer { unsafe rmdir(folder) }
        let lock = unsafe open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { close(lock) }
        try #require(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0)
        // The path is free, so the listener takes it without the lock, after 100 ms of real time.
        let address = try UnixAddress(path: folder + "/socket")
        let listener = try await UnixListener.listen(address, loop: loop)
        #expect(exists(address.path))
        await listener.close()
        await loop.shutdown()
    }

    @Test("a path on which a listener listens is refused as in use, and its file stays")
    func live() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let first = try await UnixListener.listen(address, loop: loop)
            for kind in [UnixAddress.Kind.stream, .seqpacket] {
                let samePath = try UnixAddress(path: address.path, kind: kind)
                let error = await #expect(throws: LinkError.self) {
                    try await UnixListener.listen(samePath, loop: loop)
                }
                #expect(error?.code == .addressInUse)
            }
            #expect(exists(address.path))
            // The refused attempts queued no connection: the next dial is the first one accepted.
            async let accepted = first.accept()
            let dialed = try await SocketLink.dial(address, loop: loop)
            let peer = try await accepted
            try #expect(dialed.send([1]) == 1)
            try #expect(peer.receive().bytes == [1])
            dialed.close()
            await first.close()
        }
    }

    @Test("a file that is not a socket is never removed")
    func otherFile() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            makeEmptyFile(address.path)
            let error = await #expect(throws: LinkError.self) {
                try await UnixListener.listen(address, loop: loop)
            }
            #expect(error?.code == .addressInUse)
            #expect(error?.reason.contains("no socket") == true)
            #expect(exists(address.path))
            removeFile(address.path)
        }
    }

    @Test("closing a listener does not remove the file of a newer listener on the same path")
    func keepsOtherListenersFile() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let first = try await UnixListener.listen(address, loop: loop)
            removeFile(address.path)
            let second = try await UnixListener.listen(address, loop: loop)
            await first.close()
            #expect(exists(address.path))
            await second.close()
            #expect(!exists(address.path))
        }
    }

    @Test("of eight listeners that try to replace one stale socket at once, exactly one succeeds")
    func race() async throws {
        try await withLoop { loop in
            for _ in 0..<20 {
                // A folder for these listeners only, since a listener locks its socket's folder.
                let folder = temporaryPath()
                try #require(unsafe mkdir(folder, 0o700) == 0)
                defer { unsafe rmdir(folder) }
                let address = try UnixAddress(path: folder + "/socket")
                try await makeStaleSocket(address, loop: loop)
                let winners: [UnixListener] = await withTaskGroup(of: UnixListener?.self) { group in
                    for _ in 0..<8 {
                        // The tasks do not run on the loop, which has only one thread.
                        group.addTask(executorPreference: globalConcurrentExecutor) {
                            try? await UnixListener.listen(address, loop: .shared)
                        }
                    }
                    return await group.reduce(into: []) { found, listener in
                        if let listener { found.append(listener) }
                    }
                }
                #expect(winners.count == 1)
                for winner in winners { await winner.close() }
            }
        }
    }

    @Test("a path without a file and a path with a socket of the other type give different errors")
    func dialFailures() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            var error = await #expect(throws: LinkError.self) {
                try await SocketLink.dial(address, loop: loop)
            }
            #expect(error?.code == .notFound)
            let listener = try await UnixListener.listen(address, loop: loop)
            let seqpacketAddress = try UnixAddress(path: address.path, kind: .seqpacket)
            error = await #expect(throws: LinkError.self) {
                try await SocketLink.dial(seqpacketAddress, loop: loop)
            }
            #expect(error?.code == .refused)
            #expect(error?.reason.contains("unix:") == true)
            await listener.close()
        }
    }

    @Test("a dial to a listener with a full queue ends at its deadline, or when the queue has room")
    func dialDeadline() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, backlog: 0, loop: loop)
            let first = try await SocketLink.dial(address, loop: loop)
            let error = await #expect(throws: LinkError.self) {
                try await SocketLink.dial(
                    address, deadline: loop.now.advanced(by: .milliseconds(20)), loop: loop)
            }
            #expect(error?.code == .timedOut)
            #expect(loop.load.timers == 0)
            let waiting = Task(executorPreference: loop) {
                try await SocketLink.dial(address, loop: loop)
            }
            async let accepted = listener.accept()
            _ = try await (accepted, waiting.value)
            first.close()
            await listener.close()
            #expect(loop.load.sources == 0)
        }
    }

    @Test("a dial and an accept end when they are cancelled, and leave nothing in the loop")
    func cancellation() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, backlog: 0, loop: loop)
            let acceptor = Task(executorPreference: loop) { try await listener.accept() }
            await loop.settle()
            acceptor.cancel()
            var error = await #expect(throws: LinkError.self) { try await acceptor.value }
            #expect(error?.code == .cancelled)
            let first = try await SocketLink.dial(address, loop: loop)
            let dialer = Task(executorPreference: loop) {
                try await SocketLink.dial(address, loop: loop)
            }
            await loop.settle()
            dialer.cancel()
            error = await #expect(throws: LinkError.self) { try await dialer.value }
            #expect(error?.code == .cancelled)
            first.close()
            await listener.close()
            #expect(loop.load.sources == 0)
            #expect(loop.load.timers == 0)
        }
    }

    @Test("two waiting accepts get the first and the second peer, in the order of the calls")
    func acceptOrder() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, loop: loop)
            let first = Task(executorPreference: loop) { try await listener.accept() }
            await loop.settle()
            let second = Task(executorPreference: loop) { try await listener.accept() }
            await loop.settle()
            let firstDialed = try await SocketLink.dial(address, loop: loop)
            let secondDialed = try await SocketLink.dial(address, loop: loop)
            _ = try firstDialed.send([1])
            _ = try secondDialed.send([2])
            try #expect(await first.value.receive().bytes == [1])
            try #expect(await second.value.receive().bytes == [2])
            await listener.close()
        }
    }

    @Test(
        "a link that is accepted for another loop runs only on that loop, and carries bytes",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func otherLoop(_ kind: UnixAddress.Kind) async throws {
        try await withLoop { loop in
            try await withLoop { target in
                let address = try UnixAddress(path: temporaryPath(), kind: kind)
                let listener = try await UnixListener.listen(address, loop: loop)
                async let accepting = listener.accept(on: { target })
                let dialed = try await SocketLink.dial(address, loop: loop)
                let accepted = try await accepting
                #expect(accepted.loop === target)
                let recorder = Recorder()
                var arrived: [UInt8] = []
                recorder.whenReadable = { arrived += (try? accepted.receive().bytes) ?? [] }
                accepted.setHandler(recorder)
                accepted.wantsRead = true
                // From here on, the dialed link is the only source of `loop`.
                await listener.close()
                await loop.run { dialed.wantsRead = true }
                #expect(target.load.sources == 1)
                try await loop.run {
                    let sent = try dialed.send([1, 2, 3])
                    #expect(sent == 3)
                }
                while arrived.count < 3 { await target.settle() }
                #expect(arrived == [1, 2, 3])
                accepted.close()
                #expect(target.load.sources == 0)
                await loop.run {
                    dialed.close()
                    #expect(loop.load.sources == 0)
                }
            }
        }
    }

    @Test("a waiting accept for a loop that is shut down makes the link on the listener's loop")
    func otherLoopIsShutDown() async throws {
        try await withLoop { loop in
            let target = EventLoop(name: "target")
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, loop: loop)
            let accepting = Task(executorPreference: loop) {
                try await listener.accept(on: { target })
            }
            await loop.settle()
            await target.shutdown()
            let dialed = try await SocketLink.dial(address, loop: loop)
            let accepted = try await accepting.value
            #expect(accepted.loop === loop)
            accepted.close()
            dialed.close()
            await listener.close()
            #expect(loop.load.sources == 0)
        }
    }

    @Test("a link accepted for another loop that is being shut down leaves no descriptor")
    func otherLoopEnds() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, loop: loop)
            for _ in 0..<100 {
                let target = EventLoop(name: "target")
                async let accepting = listener.accept(on: { target })
                // Not on `loop`, so that the shutdown and the accept are concurrent.
                let ending = Task.detached { await target.shutdown() }
                let dialed = try await SocketLink.dial(address, loop: loop)
                let accepted = try await accepting
                await ending.value
                let isClosed = await accepted.loop.run {
                    accepted.close()
                    return (accepted as? SocketLink)?.fileDescriptor == -1
                }
                #expect(isClosed)
                dialed.close()
            }
            await listener.close()
            #expect(loop.load.sources == 0)
        }
    }

    @Test("a listener that is no longer referenced removes its socket file")
    func dropped() async throws {
        try await withLoop { loop in
            let address = try UnixAddress(path: temporaryPath())
            var listener: UnixListener? = try await UnixListener.listen(address, loop: loop)
            #expect(listener != nil)
            listener = nil
            await loop.settle()
            #expect(!exists(address.path))
        }
    }

    @Test("a thousand links, dialed, accepted and closed, leave nothing in the loop")
    func noLeak() async throws {
        try await withLoop { loop in
            let before = openDescriptors()
            let address = try UnixAddress(path: temporaryPath())
            let listener = try await UnixListener.listen(address, loop: loop)
            let recorder = Recorder()
            for round in 0..<1_000 {
                async let accepted = listener.accept()
                let dialed = try await SocketLink.dial(
                    address, deadline: loop.now.advanced(by: .seconds(10)), loop: loop)
                let peer = try await accepted
                // The loop watches only links that have a handler and want to read.
                dialed.setHandler(recorder)
                dialed.wantsRead = true
                peer.setHandler(recorder)
                peer.wantsRead = true
                if round.isMultiple(of: 2) {
                    dialed.close()
                    peer.close()
                }
                // In the other rounds, the links close because they are no longer referenced.
            }
            await listener.close()
            await loop.settle()
            #expect(loop.load.sources == 0)
            #expect(loop.load.timers == 0)
            // A leak of one link in every second round would leave 500. Other tests may open
            // descriptors meanwhile, but fewer than 200.
            #expect(openDescriptors() < before + 200)
        }
    }

    @Test("a path that is empty, has 108 bytes or has a zero byte is invalid; 107 bytes are valid")
    func badPaths() {
        for path in ["", String(repeating: "x", count: 108), "a\0b"] {
            let error = #expect(throws: LinkError.self) { try UnixAddress(path: path) }
            #expect(error?.code == .invalidAddress)
        }
        #expect((try? UnixAddress(path: String(repeating: "x", count: 107))) != nil)
    }
}
