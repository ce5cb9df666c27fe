internal import BLESecL2CAP
internal import BLESecLinks

/// A listener whose links arrive over L2CAP, on a PSM that can be renewed, or are passed to
/// ``admit(_:)``. After a renewal it serves the old PSM for a while.
actor RenewableListener: LinkListener {
    /// How long the old PSM is served, for peers that have just read it.
    private static let grace = Duration.seconds(60)
    /// How many links may wait here. Further links over L2CAP wait in the kernel.
    private static let backlog = 4

    private nonisolated let loop: EventLoop
    private let adapter: Adapter?
    /// Called with each accepted link, before any other code sees the link.
    private let onAccept: @Sendable (any Link) -> Void
    private var current: L2CAPListener?
    private var acceptTasks: [ObjectIdentifier: Task<Void, Never>] = [:]
    private var arrived: [any Link] = []
    private let waiting: LoopCondition
    private var isClosed = false
    nonisolated let localDescription: String
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
    /// The address where peers can dial now; `nil` without L2CAP.
    var localAddress: L2CAPAddress? { current?.localAddress }

    /// Listens on an adapter's L2CAP channels; without an adapter, only ``admit(_:)`` brings links.
    static func listen(
        on adapter: Adapter?, loop: EventLoop, onAccept: @escaping @Sendable (any Link) -> Void
    ) async throws(LinkError) -> RenewableListener {
        guard let adapter else { return RenewableListener(nil, nil, loop, onAccept) }
        let first = try await L2CAPListener.listen(on: adapter, loop: loop)
        let listener = RenewableListener(first, adapter, loop, onAccept)
        await listener.serve(first)
        return listener
    }

    private init(
        _ first: L2CAPListener?, _ adapter: Adapter?, _ loop: EventLoop,
        _ onAccept: @escaping @Sendable (any Link) -> Void
    ) {
        current = first
        self.adapter = adapter
        self.loop = loop
        self.onAccept = onAccept
        waiting = LoopCondition(loop: loop)
        localDescription = first?.localDescription ?? Endpoint.gatt.description
    }

    isolated deinit { for task in acceptTasks.values { task.cancel() } }

    /// Listens on a new PSM; the old PSM is closed after ``grace``.
    func renew() async throws(LinkError) {
        guard let adapter, let old = current else { return }
        let fresh = try await L2CAPListener.listen(on: adapter, loop: loop)
        guard !isClosed else { return await fresh.close() }
        current = fresh
        serve(fresh)
        Task(executorPreference: loop) { [loop, weak self] in
            try? await loop.sleep(for: Self.grace)
            await self?.end(old)
        }
    }

    func accept() async throws(LinkError) -> any Link {
        while arrived.isEmpty {
            guard !isClosed else { throw LinkError(.closed, "the listener is closed") }
            let isCancelled = await waiting.wait(for: .link, isolation: self) {
                !arrived.isEmpty || isClosed
            }
            if isCancelled { throw LinkError(.cancelled, "the task that waited was cancelled") }
        }
        let link = arrived.removeFirst()
        waiting.wake(.room)
        return link
    }

    func close() async {
        guard !isClosed else { return }
        isClosed = true
        for task in acceptTasks.values { task.cancel() }
        acceptTasks = [:]
        for link in arrived { link.close() }
        arrived = []
        waiting.wake(.link)
        waiting.wake(.room)
        await current?.close()
    }

    /// Queues a link that has arrived over any transport; closes the link if the queue is full.
    func admit(_ link: any Link) {
        guard arrived.count < Self.backlog, !isClosed else { return link.close() }
        onAccept(link)
        arrived.append(link)
        waiting.wake(.link)
    }

    private func serve(_ listener: L2CAPListener) {
        acceptTasks[ObjectIdentifier(listener)] = Task(executorPreference: loop) {
            [loop, weak self] in
            await listener.acceptAll(on: loop) { [weak self] link in
                guard let self else { return await loop.run { link.close() } }
                await self.take(link)
            }
        }
    }

    private func take(_ link: any Link) async {
        try? await waiting.wait(for: .room, on: self) { arrived.count < Self.backlog || isClosed }
        if Task.isCancelled { link.close() } else { admit(link) }
    }

    private func end(_ listener: L2CAPListener) async {
        acceptTasks.removeValue(forKey: ObjectIdentifier(listener))?.cancel()
        await listener.close()
    }
}
