internal import BLESecL2CAP
internal import BLESecLinks

/// A listener whose links arrive over L2CAP, on PSMs that are renewed, or are passed to
/// ``admit(_:)``. After a renewal it serves the old PSM for a while.
///
/// There are two PSMs, most of the time the same one. One is advertised. The other is told by the
/// GATT service: a device that has had a channel on it is told a fresh one when it asks again, since
/// iOS opens no second channel on a PSM whose channel died while the link stayed up.
actor RenewableListener: LinkListener {
    /// How long the old PSM is served, for peers that have just read it.
    private static let grace = Duration.seconds(60)
    /// How many links may wait here. Further links over L2CAP wait in the kernel.
    private static let backlog = 4
    /// How many PSMs may be served at once for a device to be told a fresh one: an adapter has 128,
    /// and any device nearby can ask.
    private static let mostPSMs = 16
    /// How many devices are remembered as users of the told PSM.
    private static let mostUsers = 64
    /// How many of its PSMs it remembers, so as not to open one of them again: a device may still
    /// have the link on which its channel died.
    private static let mostSpent = 64

    /// A listener that is served.
    private struct Service {
        let listener: L2CAPListener
        let task: Task<Void, Never>
        /// Whether it is old, and will be closed after ``grace``.
        var isRetiring = false
    }

    private nonisolated let loop: EventLoop
    private let adapter: Adapter?
    /// Called with each accepted link, before any other code sees the link.
    private let onAccept: @Sendable (any Link) -> Void
    /// The listener whose PSM is advertised.
    private var advertised: L2CAPListener?
    /// The listener whose PSM the GATT service tells.
    private var told: L2CAPListener?
    /// The devices that have opened a channel on the told PSM, the last one at the end.
    private var users: [DeviceAddress] = []
    /// The numbers of the PSMs that were opened, the last one at the end.
    private var spent: [Int] = []
    /// The two listeners, and old ones.
    private var services: [ObjectIdentifier: Service] = [:]
    private var arrived: [any Link] = []
    private let waiting: LoopCondition
    private var isClosed = false
    nonisolated let localDescription: String
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
    /// The address where peers can dial now; `nil` without L2CAP.
    var localAddress: L2CAPAddress? { advertised?.localAddress }

    /// Listens on an adapter's L2CAP channels; without an adapter, only ``admit(_:)`` brings links.
    static func listen(
        on adapter: Adapter?, loop: EventLoop, onAccept: @escaping @Sendable (any Link) -> Void
    ) async throws(LinkError) -> RenewableListener {
        guard let adapter else { return RenewableListener(nil, nil, loop, onAccept) }
        let first = try open([], on: adapter, loop)
        let listener = RenewableListener(first, adapter, loop, onAccept)
        await listener.add(first)
        return listener
    }

    private init(
        _ first: L2CAPListener?, _ adapter: Adapter?, _ loop: EventLoop,
        _ onAccept: @escaping @Sendable (any Link) -> Void
    ) {
        advertised = first
        told = first
        self.adapter = adapter
        self.loop = loop
        self.onAccept = onAccept
        waiting = LoopCondition(loop: loop)
        localDescription = first?.localDescription ?? Endpoint.gatt.description
    }

    isolated deinit { for service in services.values { service.task.cancel() } }

    /// Listens on a new PSM, which is advertised and told; the old ones are closed after ``grace``.
    func renew() throws(LinkError) {
        guard let fresh = try open() else { return }
        advertised = fresh
        tell(fresh)
    }

    /// The PSM for a device that asks the GATT service; `nil` without L2CAP.
    func tellPSM(to device: DeviceAddress?) -> PSM? {
        if let device, users.contains(device), services.count < Self.mostPSMs,
            let fresh = try? open()
        {
            tell(fresh)
        }
        return told?.localAddress.psm
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
        for link in arrived { link.close() }
        arrived = []
        waiting.wake(.link)
        waiting.wake(.room)
        for service in services.values { await end(service.listener) }
    }

    /// Queues a link that has arrived over any transport; closes the link if the queue is full.
    func admit(_ link: any Link) {
        guard arrived.count < Self.backlog, !isClosed else { return link.close() }
        onAccept(link)
        arrived.append(link)
        waiting.wake(.link)
    }

    // MARK: - PSMs

    /// Listens on a PSM by chance, since a row of PSMs could be followed. The last ones of `spent`
    /// come only if no other is free.
    private static func open(
        _ spent: [Int], on adapter: Adapter, _ loop: EventLoop
    ) throws(LinkError) -> L2CAPListener {
        let others = PSM.dynamic.filter { !spent.contains($0) }
        for number in others.shuffled() + spent {
            do throws(LinkError) {
                return try L2CAPListener.listen(psm: PSM(number), on: adapter, loop: loop)
            } catch {
                guard error.code == .addressInUse else { throw error }
            }
        }
        return try L2CAPListener.listen(on: adapter, loop: loop)
    }

    /// Listens on another PSM; `nil` without L2CAP, and once closed.
    private func open() throws(LinkError) -> L2CAPListener? {
        guard let adapter, !isClosed else { return nil }
        let fresh = try Self.open(spent, on: adapter, loop)
        add(fresh)
        return fresh
    }

    private func add(_ fresh: L2CAPListener) {
        let number = Int(fresh.localAddress.psm.rawValue)
        spent.removeAll { $0 == number }
        spent.append(number)
        if spent.count > Self.mostSpent { spent.removeFirst() }
        serve(fresh)
    }

    private func tell(_ fresh: L2CAPListener) {
        told = fresh
        users = []
        for (key, service) in services
        where service.listener !== advertised && service.listener !== told && !service.isRetiring {
            services[key]?.isRetiring = true
            Task(executorPreference: loop) { [loop, weak self] in
                try? await loop.sleep(for: Self.grace)
                await self?.end(service.listener)
            }
        }
    }

    private func end(_ listener: L2CAPListener) async {
        services.removeValue(forKey: ObjectIdentifier(listener))?.task.cancel()
        await listener.close()
    }

    // MARK: - Links

    private func serve(_ listener: L2CAPListener) {
        let task = Task(executorPreference: loop) { [loop, weak self] in
            await listener.acceptAll(on: loop) { [weak self] link in
                guard let self else { return await loop.run { link.close() } }
                await self.take(link, from: listener)
            }
        }
        services[ObjectIdentifier(listener)] = Service(listener: listener, task: task)
    }

    private func take(_ link: any Link, from listener: L2CAPListener) async {
        if listener === told, let device = link.peerAddress?.device, !users.contains(device) {
            if users.count == Self.mostUsers { users.removeFirst() }
            users.append(device)
        }
        try? await waiting.wait(for: .room, on: self) { arrived.count < Self.backlog || isClosed }
        if Task.isCancelled { link.close() } else { admit(link) }
    }
}
