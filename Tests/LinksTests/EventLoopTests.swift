import BLESecLinks
import BLESecLocking
import Testing

/// An actor whose executor is a loop.
private actor Counter {
    nonisolated let loop: EventLoop
    var value = 0
    var wasAlwaysOnLoop = true

    init(_ loop: EventLoop) { self.loop = loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    func add() {
        value += 1
        if !loop.isCurrent { wasAlwaysOnLoop = false }
    }
}

@Suite struct EventLoopTests {
    @Test("an actor on the loop runs on the loop's thread for every caller")
    func actorOnLoop() async {
        let loop = EventLoop(name: "test")
        let counter = Counter(loop)
        await withTaskGroup { group in
            for _ in 0..<8 { group.addTask { for _ in 0..<500 { await counter.add() } } }
        }
        #expect(await counter.value == 4_000)
        #expect(await counter.wasAlwaysOnLoop)
        await loop.shutdown()
    }

    @Test("a closure on the loop may assume the isolation of an actor on the same loop")
    func assumeIsolated() async {
        let loop = EventLoop(name: "test")
        let counter = Counter(loop)
        await loop.run { counter.assumeIsolated { $0.add() } }
        #expect(await counter.value == 1)
        await loop.shutdown()
    }

    @Test("a task with the loop as its preferred executor runs on the loop's thread")
    func taskExecutor() async {
        let loop = EventLoop(name: "test")
        let wasCurrent = await Task(executorPreference: loop) { loop.isCurrent }.value
        #expect(wasCurrent)
        #expect(!loop.isCurrent)
        await loop.shutdown()
    }

    @Test("closures run in the order in which they were queued")
    func order() async {
        let loop = EventLoop(name: "test")
        let seen = Locked<[Int]>([])
        for number in 0..<1_000 { loop.execute { seen.withLock { $0.append(number) } } }
        await loop.run {}
        #expect(seen.withLock { $0 } == Array(0..<1_000))
        await loop.shutdown()
    }

    @Test(
        "a readable descriptor's handler is called although a task yields again and again",
        .timeLimit(.minutes(1)))
    func fairness() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            let isDone = Locked(false)
            recorder.whenReadable = {
                b.wantsRead = false
                isDone.withLock { $0 = true }
            }
            b.setHandler(recorder)
            b.wantsRead = true
            _ = try a.send([1])
            // Each yield queues a job, so the queue stays filled until the descriptor is served.
            while !isDone.withLock({ $0 }), !Task.isCancelled { await Task.yield() }
            #expect(recorder.readableCount == 1)
        }
    }

    @Test("run throws the error of its closure with the error's type")
    func runThrows() async {
        let loop = EventLoop(name: "test")
        do throws(LinkError) {
            try await loop.run { () throws(LinkError) in throw LinkError(.refused, "no") }
            Issue.record("nothing was thrown")
        } catch {
            #expect(error.code == .refused)
        }
        await loop.shutdown()
    }

    @Test("shutting down ends a sleep and an accept with errors, and may be repeated")
    func shutdownWakes() async throws {
        let loop = EventLoop(name: "test")
        let address = try UnixAddress(path: temporaryPath())
        let listener = try await UnixListener.listen(address, loop: loop)
        let sleeper = Task(executorPreference: loop) { try await loop.sleep(for: .seconds(1_000)) }
        let acceptor = Task(executorPreference: loop) { () throws(LinkError) in
            try await listener.accept()
        }
        await loop.settle()
        await loop.shutdown()
        await loop.shutdown()
        await #expect(throws: CancellationError.self) { try await sleeper.value }
        let error = await #expect(throws: LinkError.self) { try await acceptor.value }
        #expect(error?.code == .closed)
        await listener.close()
    }

    @Test("shutting down ends a sleep until `distantFuture`", .timeLimit(.minutes(1)))
    func shutdownWakesEndlessSleep() async {
        let loop = EventLoop(name: "test")
        let sleeper = Task(executorPreference: loop) {
            try await loop.sleep(until: .distantFuture)
        }
        await loop.settle()
        await loop.shutdown()
        await #expect(throws: CancellationError.self) { try await sleeper.value }
    }

    @Test("after the shutdown, a new job still runs and a new sleep is cancelled")
    func afterShutdown() async {
        let loop = EventLoop(name: "test")
        let counter = Counter(loop)
        await loop.shutdown()
        await counter.add()
        #expect(await counter.value == 1)
        await #expect(throws: CancellationError.self) { try await loop.sleep(for: .seconds(1)) }
        await loop.settle()
    }

    @Test("a thousand loops leave no descriptor behind")
    func nothingLeaks() async {
        for _ in 0..<20 { await EventLoop(name: "test").shutdown() }
        let before = openDescriptors()
        for _ in 0..<1_000 {
            let loop = EventLoop(name: "test")
            #expect(await loop.run { loop.isCurrent })
            await loop.shutdown()
        }
        // A leak would leave at least 1,000. Other tests may open descriptors meanwhile, but fewer
        // than 200.
        #expect(openDescriptors() < before + 200)
    }
}
