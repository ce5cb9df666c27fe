internal import BLESecL2CAP
internal import BLESecLinks

/// A listener for links that arrive over L2CAP, on PSMs that are renewed, and for links that are
/// passed to ``admit(_:)``. After a renewal, the listener serves the old PSM for a while.
///
/// A PSM is published in the advertisement, and a PSM in the characteristic of the GATT service;
/// usually both are the same PSM. When a device reads the characteristic after it has opened an L2CAP
/// channel on the characteristic's PSM, the device gets a new PSM. iOS needs this: iOS opens no
/// second channel on a PSM whose channel died while the LE connection stayed up.
actor RenewableListener: LinkListener {
    /// How long the old PSM is served, for peers that have just read it.
    static let grace = Duration.seconds(60)
    /// How long the old PSMs are served when they are flooded. With the default time limits, every
    /// link over them has failed within `AdvertisingThrottle.cooldown`, before the service
    /// advertises again.
    static let graceInFlood = Duration.seconds(5)
    /// How many links may wait for ``accept()``. Further links over L2CAP wait in the kernel.
    private static let backlog = 4
    /// No new PSM is opened for a device while this many PSMs are served: an adapter has 128
    /// dynamic PSMs, and any device nearby can read the characteristic.
    private static let mostPSMs = 16
    /// How many of the served PSMs may have been opened for one device, so that one device cannot
    /// keep other devices from getting new PSMs.
    private static let mostPSMsOfDevice = 4
    /// How many users of the characteristic's PSM are remembered.
    private static let mostUsers = 64
    /// How many opened PSMs are remembered, so that they are not opened again soon: a device may
    /// still have the LE connection on which its channel died.
    private static let mostRecentPSMs = 64

    /// A listener for one PSM, and the task that accepts the links on this PSM.
    private struct ServedPSM {
        let listener: L2CAPListener
        let task: Task<Void, Never>
        /// The device for which this PSM was opened, because the device had already used the
        /// previous one; nil if the PSM was not opened for one device.
        var openedFor: DeviceAddress?
        /// Whether the PSM is no longer published, and the listener closes after its grace time
        /// (``RenewableListener/grace`` or ``RenewableListener/graceInFlood``).
        var isRetiring = false
    }

    private nonisolated let loop: EventLoop
    /// The adapter, as it was when the last PSM was opened; nil without L2CAP.
    private var adapter: Adapter?
    /// Called with each accepted link, before any other code sees the link.
    private let onAccept: @Sendable (any Link) -> Void
    /// The listener whose PSM is advertised.
    private var advertisedListener: L2CAPListener?
    /// The listener whose PSM is in the characteristic.
    private var characteristicListener: L2CAPListener?
    /// The devices that have opened a channel on the characteristic's PSM, the last one at the end.
    private var users: [DeviceAddress] = []
    /// The numbers of the PSMs that were opened, the last one at the end.
    private var recentPSMs: [Int] = []
    /// ``advertisedListener`` and ``characteristicListener``, which may be the same, and the
    /// retiring listeners.
    private var servedPSMs: [ObjectIdentifier: ServedPSM] = [:]
    /// The links that ``accept()`` has not returned yet.
    private var arrivedLinks: [any Link] = []
    /// Why a peer could not be accepted; ``accept()`` throws this error once.
    private var acceptError: LinkError?
    private let waiting: LoopCondition
    private var isClosed = false
    nonisolated let localDescription: String
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
    /// The address where peers can dial now; `nil` without L2CAP.
    var localAddress: L2CAPAddress? { advertisedListener?.localAddress }
    /// Whether another device has got the adapter's name since the advertised PSM was opened. The
    /// kernel passes a listener only the links of the address that the listener is bound to.
    var isOnFormerAdapter: Bool {
        guard let adapter, let present = try? Adapter.named(adapter.name) else { return false }
        return present.address != localAddress?.device
    }

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
        advertisedListener = first
        characteristicListener = first
        self.adapter = adapter
        self.loop = loop
        self.onAccept = onAccept
        waiting = LoopCondition(loop: loop)
        localDescription = first?.localDescription ?? Endpoint.gatt.description
    }

    isolated deinit { for served in servedPSMs.values { served.task.cancel() } }

    /// Listens on a new PSM, which is then in the advertisement and in the characteristic. The old
    /// PSMs are served for `grace`, which is ``RenewableListener/grace`` or ``graceInFlood``.
    func renew(grace: Duration) throws(LinkError) {
        guard let fresh = try open() else { return }
        advertisedListener = fresh
        publish(fresh, grace: grace)
    }

    /// The PSM for a device that reads the characteristic; `nil` without L2CAP.
    func psmForReading(by device: DeviceAddress?) -> PSM? {
        guard !isClosed else { return nil }
        if let device, users.contains(device), mayOpenPSM(for: device), let fresh = try? open() {
            servedPSMs[ObjectIdentifier(fresh)]?.openedFor = device
            publish(fresh)
        }
        return characteristicListener?.localAddress.psm
    }

    func accept() async throws(LinkError) -> any Link {
        while arrivedLinks.isEmpty {
            if let error = acceptError.take() { throw error }
            guard !isClosed else { throw LinkError(.closed, "the listener is closed") }
            // The deadline never comes. But only a wait with a deadline ends at the loop's
            // shutdown.
            let isCancelled = await waiting.wait(
                for: .link, until: .distantFuture, isolation: self
            ) { !arrivedLinks.isEmpty || isClosed || acceptError != nil }
            if isCancelled { throw LinkError(.cancelled, "the task that waited was cancelled") }
        }
        let link = arrivedLinks.removeFirst()
        waiting.wake(.room)
        return link
    }

    func close() async {
        guard !isClosed else { return }
        isClosed = true
        for link in arrivedLinks { link.close() }
        arrivedLinks = []
        waiting.wake(.link)
        waiting.wake(.room)
        for served in servedPSMs.values { await end(served.listener) }
    }

    /// Queues a link that has arrived over any transport; closes the link if the queue is full.
    func admit(_ link: any Link) {
        guard arrivedLinks.count < Self.backlog, !isClosed else { return link.close() }
        onAccept(link)
        acceptError = nil
        arrivedLinks.append(link)
        waiting.wake(.link)
    }

    // MARK: - PSMs

    /// Listens on a random PSM, because consecutive PSMs would let an observer track this device. A
    /// PSM of `recentPSMs` is used only if no other is free, the oldest first.
    private static func open(
        _ recentPSMs: [Int], on adapter: Adapter, _ loop: EventLoop
    ) throws(LinkError) -> L2CAPListener {
        let others = PSM.dynamic.filter { !recentPSMs.contains($0) }
        for number in others.shuffled() + recentPSMs {
            do throws(LinkError) {
                return try L2CAPListener.listen(psm: PSM(number), on: adapter, loop: loop)
            } catch {
                guard error.code == .addressInUse else { throw error }
            }
        }
        return try L2CAPListener.listen(on: adapter, loop: loop)
    }

    private func mayOpenPSM(for device: DeviceAddress) -> Bool {
        servedPSMs.count < Self.mostPSMs
            && servedPSMs.values.count { $0.openedFor == device } < Self.mostPSMsOfDevice
    }

    /// Listens on another PSM; `nil` without L2CAP, and once closed.
    private func open() throws(LinkError) -> L2CAPListener? {
        guard let adapter, !isClosed else { return nil }
        // While the adapter is off, the PSM is opened at the last known address.
        let present = (try? Adapter.named(adapter.name)) ?? adapter
        self.adapter = present
        let fresh = try Self.open(recentPSMs, on: present, loop)
        add(fresh)
        return fresh
    }

    private func add(_ fresh: L2CAPListener) {
        let number = Int(fresh.localAddress.psm.rawValue)
        recentPSMs.removeAll { $0 == number }
        recentPSMs.append(number)
        if recentPSMs.count > Self.mostRecentPSMs { recentPSMs.removeFirst() }
        serve(fresh)
    }

    /// Remembers that a device has used the characteristic's PSM. If too many devices have used this
    /// PSM, a new PSM replaces it. If no new PSM can be opened, the device that used the PSM first is
    /// forgotten.
    private func addUser(_ device: DeviceAddress) {
        guard !users.contains(device) else { return }
        if users.count == Self.mostUsers {
            if servedPSMs.count < Self.mostPSMs, let fresh = try? open() { return publish(fresh) }
            users.removeFirst()
        }
        users.append(device)
    }

    /// Puts a PSM into the characteristic, and retires the PSMs that are no longer published. A
    /// shorter `grace` than usual also applies to the PSMs that are retiring already.
    private func publish(_ fresh: L2CAPListener, grace: Duration = RenewableListener.grace) {
        characteristicListener = fresh
        users = []
        let isShorter = grace < Self.grace
        for (key, served) in servedPSMs
        where served.listener !== advertisedListener
            && served.listener !== characteristicListener && (!served.isRetiring || isShorter)
        {
            servedPSMs[key]?.isRetiring = true
            Task(executorPreference: loop) { [loop, weak self, weak listener = served.listener] in
                try? await loop.sleep(for: grace)
                if let listener { await self?.end(listener) }
            }
        }
    }

    private func end(_ listener: L2CAPListener) async {
        servedPSMs.removeValue(forKey: ObjectIdentifier(listener))?.task.cancel()
        await listener.close()
    }

    // MARK: - Links

    private func serve(_ listener: L2CAPListener) {
        let task = Task(executorPreference: loop) { [loop, weak self] in
            await listener.acceptAll(
                on: loop, reporting: { [weak self] error in await self?.didFail(error) }
            ) { [weak self] link in
                guard let self else { return await loop.run { link.close() } }
                await self.admitWhenRoom(link, from: listener)
            }
        }
        servedPSMs[ObjectIdentifier(listener)] = ServedPSM(listener: listener, task: task)
    }

    private func didFail(_ error: LinkError) {
        acceptError = error
        waiting.wake(.link)
    }

    /// Waits until the queue has room, and then queues the link.
    private func admitWhenRoom(_ link: any Link, from listener: L2CAPListener) async {
        if listener === characteristicListener, let device = link.peerAddress?.device {
            addUser(device)
        }
        try? await waiting.wait(for: .room, on: self) {
            arrivedLinks.count < Self.backlog || isClosed
        }
        if Task.isCancelled { link.close() } else { admit(link) }
    }
}
