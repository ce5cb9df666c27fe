package import BLESecLinks

/// This process's view of bluetoothd: bluetoothd's adapters and other objects, and what this
/// process has registered.
///
/// All registrations are repeated after a restart of bluetoothd or of the message bus, and after
/// the adapter was off. The actor runs on an event loop, and needs no privilege under Debian's
/// D-Bus policy.
package actor Bluetoothd {
    /// The event loop that the actor runs on.
    package nonisolated let loop: EventLoop

    /// Made in ``start()``; nil once closed.
    private(set) var session: BusSession?
    private(set) var tree = ObjectTree()
    private let exports = ExportedObjects()
    private var scans = ServiceScans()
    private lazy var registrations = Registrations(of: self, loop: loop)
    private var notificationHandlers: [String: @Sendable ([UInt8]) -> Void] = [:]
    /// The links that end when their device disconnects.
    private var watched: [WatchedDevice] = []
    /// The dials that are under way; may contain some that are over.
    private var dials: [WatchedDial] = []

    private let waiting: LoopCondition
    /// Counts the changes. A task that prefers another executor leaves the loop between its check
    /// and its wait; from this number the task learns of a change in between.
    private var changeCount: UInt64 = 0
    private var lastToken: UInt64 = 0
    /// Whether an attempt to list bluetoothd's objects has ended, with or without success.
    private var hasTriedListing = false

    private struct WatchedDevice {
        let path: String
        weak var link: GATTStreamLink?
    }

    private struct WatchedDial {
        weak var dial: DeviceDial?
    }

    /// The actor runs on the loop's thread.
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Connects to bluetoothd. Returns once bluetoothd's objects are known, or once it is known
    /// that bluetoothd does not run or does not answer. If the task is cancelled, returns earlier,
    /// and ``adapter(_:)`` then throws.
    package static func connect(loop: EventLoop = .shared) async -> Bluetoothd {
        let bluetoothd = Bluetoothd(loop: loop)
        await bluetoothd.start()
        return bluetoothd
    }

    private init(loop: EventLoop) {
        self.loop = loop
        waiting = LoopCondition(loop: loop)
    }

    isolated deinit { close() }

    private func start() async {
        // Initializes the lazy property now. `deinit` uses the property, but must not initialize
        // it: the initializer forms a weak reference to this object.
        _ = registrations
        session = BusSession(of: self)
        // Every call of the session has a deadline, so the first listing ends.
        try? await wait(until: .distantFuture, to: "reach bluetoothd") {
            $0.hasTriedListing ? () : nil
        }
    }

    /// Ends the session and all registrations. A second call does nothing.
    package func close() {
        session.take()?.close()
        forget()
        scans.finish()
        wakeWaiting()
    }

    /// Discards what is known about bluetoothd, since bluetoothd has stopped (and has thus
    /// forgotten this process), or this session is closed.
    func forget() {
        tree.removeAll()
        notificationHandlers = [:]
        registrations.assumeIsolated { $0.lapse() }
        endLostLinks()
    }

    /// Whether bluetoothd runs, and its objects are known.
    package var isRunning: Bool { owner != nil }
    var owner: String? { session?.owner }
    /// Why libsystemd, and so bluetoothd, cannot be used; nil if libsystemd is loaded.
    package static var loadFailure: DiscoveryError? { Bus.loadFailure }
    /// Why bluetoothd has not listed its objects; nil if bluetoothd has listed them,
    /// or does not run.
    package var listingFailure: DiscoveryError? { session?.listingFailure }
    /// The process ID of bluetoothd; nil when bluetoothd does not run, or the bus does not report
    /// the ID.
    package var processID: Int? { get async { await session?.processID(isolation: self) } }

    // MARK: - Changes

    /// Reacts to a change in the tree, or of a registration: sends the requests that can be sent
    /// now, ends the links of disconnected devices, tells the dials whose devices are paired, and
    /// wakes the tasks that wait.
    func treeChanged() {
        registrations.assumeIsolated { $0.settle() }
        endLostLinks()
        reportPairings()
        wakeWaiting()
    }

    /// Wakes the tasks that wait, so that they check their conditions again.
    func wakeWaiting() {
        changeCount += 1
        waiting.wake(.change)
    }

    /// Waits until `check`, which is called now and after each change, returns a value. If the
    /// session or the loop ends, this method throws the same error as at the deadline.
    func wait<Value: Sendable>(
        until deadline: MonotonicTime, to action: String,
        for check: @Sendable (isolated Bluetoothd) throws(DiscoveryError) -> Value?
    ) async throws(DiscoveryError) -> Value {
        while true {
            let seen = changeCount
            if let value = try check(self) { return value }
            guard loop.now < deadline, session != nil, !loop.isShutDown else {
                throw DiscoveryError(.timedOut, "cannot \(action): it took too long")
            }
            let isCancelled = await waiting.wait(
                for: .change, until: deadline, isolation: self, unless: { changeCount != seen })
            if isCancelled, !loop.isShutDown {
                throw DiscoveryError(
                    .cancelled, "cannot \(action): the task that waited was cancelled")
            }
        }
    }

    /// An attempt to list the objects has ended; `objects` is nil if the attempt has failed.
    func listingEnded(with objects: BusValue?) {
        if let objects { tree.replace(with: objects) }
        hasTriedListing = true
        treeChanged()
    }

    /// Handles a signal of bluetoothd about one of bluetoothd's objects; ignores any other signal.
    func take(_ signal: BusMessage) {
        let body = signal.body()
        // The path of an object; in `PropertiesChanged`, the name of an interface.
        guard let subject = body.first?.text else { return }
        switch (signal.interface, signal.member, body.count) {
        case (Interface.objectManager, "InterfacesAdded", 2):
            tree.add(subject, body[1])
            treeChanged()
            let hasDevice = body[1].properties?[Interface.device] != nil
            if hasDevice, tree.wasNewDeviceHeard(subject) { scans.heard(subject, in: tree) }
        case (Interface.objectManager, "InterfacesRemoved", 2):
            let wasConnected = tree.isConnected(subject)
            tree.remove(subject, body[1].texts ?? [])
            treeChanged()
            if tree.wantsListing { session?.listObjectsSoon() }
            if wasConnected, !tree.isConnected(subject) { linkEnded(subject) }
        case (Interface.properties, "PropertiesChanged", 3):
            let properties = body[1].properties ?? [:]
            if tree.lacksConnectedDevice(signal.path, subject, properties) {
                session?.readDevice(at: signal.path)
            } else if tree.lacksHeardDevice(signal.path, subject, properties) {
                session?.listObjectsSoon()
            }
            tree.change(signal.path, subject, properties, invalidated: body[2].texts ?? [])
            changed(signal.path, subject, properties)
        default: break
        }
    }

    /// bluetoothd has reported the properties of a device that the tree lacked.
    func deviceWasRead(at path: String, _ properties: BusValue) {
        tree.add(path, .array([.entry(.string(Interface.device), properties)], of: "{sa{sv}}"))
        treeChanged()
        if tree.wantsListing { session?.listObjectsSoon() }
    }

    private func changed(_ path: String, _ interface: String, _ properties: ObjectTree.Properties) {
        if interface == Interface.characteristic,
            let value = properties["Value"]?.bytes, let handler = notificationHandlers[path]
        {
            handler(value)
            // Only the handler depends on the value.
            if properties.count == 1 { return }
        }
        let isDevice = interface == Interface.device
        if isDevice, !ServiceScans.heardProperties.isDisjoint(with: properties.keys) {
            scans.heard(path, in: tree)
            // Only scans depend on these properties, which change when a device is heard.
            if properties.keys.allSatisfy(ServiceScans.heardProperties.contains) { return }
        }
        treeChanged()
        guard isDevice, let isConnected = properties["Connected"]?.bool else { return }
        if tree.wantsListing { session?.listObjectsSoon() }
        if !isConnected { linkEnded(path) }
    }

    private func linkEnded(_ path: String) {
        guard let adapter = AdapterName(of: path) else { return }
        registrations.assumeIsolated { $0.linkEnded(on: adapter) }
    }

    /// bluetoothd has called a method of this process; returns the answer.
    func answer(_ call: BusMessage) -> Result<[BusValue], BusError> {
        exports.answer(
            call, addressOf: { tree.address(of: $0) },
            onRelease: { path in registrations.assumeIsolated { $0.dropped(path) } })
    }

    /// Repeats the requests that have failed.
    func retry() { registrations.assumeIsolated { $0.retry() } }

    // MARK: - Adapters

    /// The adapters that bluetoothd knows.
    package var adapters: [AdapterName] {
        tree.paths(of: Interface.adapter).compactMap { AdapterName(of: $0) }
    }

    /// The adapter with that name; without a name, the first adapter that is on.
    ///
    /// - Throws: the reason why the adapter cannot be used.
    package func adapter(_ name: String?) throws(DiscoveryError) -> BluetoothAdapter {
        guard hasTriedListing else {
            throw DiscoveryError(
                .cancelled, "cannot reach bluetoothd: the task that waited was cancelled")
        }
        let wanted = name.map { AdapterName($0) }
        if let failure = failure(of: wanted) { throw failure }
        guard let found = wanted ?? preferredAdapter else {
            throw DiscoveryError(.noAdapter, "this machine has no Bluetooth adapter")
        }
        return BluetoothAdapter(found, of: self)
    }

    /// Why the adapter with that name cannot be used; without a name, why the adapter that
    /// ``adapter(_:)`` would choose cannot be used; nil if it can be used.
    func failure(of name: AdapterName?) -> DiscoveryError? {
        if owner == nil, let listingFailure { return listingFailure }
        return state(of: name).failure(of: name?.description)
    }

    /// Whether the adapter with that name can be used; without a name, whether the adapter that
    /// ``adapter(_:)`` would choose can be used.
    func state(of name: AdapterName?) -> AdapterState {
        guard owner != nil else { return .noService }
        guard let name = name ?? preferredAdapter, tree[name.path, Interface.adapter] != nil
        else { return .absent }
        if tree.isPowered(name) { return .on }
        return RFKill.blocks(name.description) ? .blocked : .off
    }

    private var preferredAdapter: AdapterName? {
        adapters.first(where: tree.isPowered) ?? adapters.first
    }

    /// Every adapter with its properties.
    package var inspection: [AdapterInspection] {
        adapters.map { AdapterInspection($0, state(of: $0), in: tree) }
    }

    // MARK: - Registrations

    /// Registers objects of this process with an adapter. `export` adds the objects under a token,
    /// and returns the request to register them.
    func register(
        _ export: @Sendable (ExportedObjects, UInt64) -> RegistrationRequest
    ) async throws(DiscoveryError) -> Registration {
        lastToken += 1
        let token = lastToken
        let request = export(exports, token)
        do throws(DiscoveryError) {
            return try await registrations.register(request, as: token)
        } catch {
            exports.remove(token)
            throw error
        }
    }

    /// The registration with this token has ended: removes the objects of this process that belong
    /// to it, and wakes the tasks that wait for bluetoothd.
    func ended(_ token: UInt64) {
        exports.remove(token)
        wakeWaiting()
    }

    func retrySoon() { session?.retrySoon() }

    func scan(
        for service: BluetoothUUID, on adapter: AdapterName, anewEvery interval: Duration?
    ) async throws(DiscoveryError) -> ServiceScan {
        let (stream, continuation) = AsyncStream<Sighting>.makeStream(
            bufferingPolicy: .bufferingNewest(ServiceScans.maximumWaitingSightings))
        lastToken += 1
        let token = lastToken
        scans.byToken[token] = .init(adapter: adapter, service: service, continuation: continuation)
        scansChanged()
        let registration: Registration
        do throws(DiscoveryError) {
            registration = try await registrations.register(
                .scan(on: adapter, anewEvery: interval), as: token)
        } catch {
            scans.byToken[token] = nil
            scansChanged()
            continuation.finish()
            throw error
        }
        // This closure keeps the registration alive until the stream ends.
        continuation.onTermination = { [weak self, loop] _ in
            Task(executorPreference: loop) { await self?.endScan(registration) }
        }
        scans.reportHeardDevices(in: tree, to: token)
        return ServiceScan(sightings: stream, registration: registration)
    }

    private func endScan(_ registration: Registration) async {
        scans.byToken[registration.token] = nil
        scansChanged()
        await registration.end()
    }

    /// Tells the tree which services this process scans for.
    private func scansChanged() {
        if tree.seek(Set(scans.byToken.values.map(\.service))) { session?.listObjects() }
    }

    /// Sends `value` to all devices that have subscribed to a characteristic of `application`.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when there is no such characteristic,
    ///   ``DiscoveryError/Code/noService`` when bluetoothd has stopped, or D-Bus's error.
    func notify(
        _ uuid: BluetoothUUID, of application: Registration, _ value: [UInt8]
    ) throws(DiscoveryError) {
        guard let path = exports.path(of: uuid, application.token) else {
            throw DiscoveryError(.notFound, "the characteristic \(uuid) is not published")
        }
        guard let session else { throw .noService(cannot: "notify") }
        try session.signalChange("Value", to: .bytes(value), of: path, Interface.characteristic)
    }

    // MARK: - Dials

    /// From now on, tells the dial when the device is paired.
    func watch(_ dial: DeviceDial) {
        dials.removeAll { $0.dial == nil }
        dials.append(WatchedDial(dial: dial))
        reportPairings()
    }

    private func reportPairings() {
        for watched in dials {
            guard let dial = watched.dial, tree.isPaired(dial.path) else { continue }
            dial.assumeIsolated { $0.paired() }
        }
    }

    // MARK: - Other devices

    /// Sets the handler for the notifications of the characteristic at `path`; nil removes it.
    /// Returns whether there was a handler before.
    @discardableResult
    func setHandler(_ handler: (@Sendable ([UInt8]) -> Void)?, of path: String) -> Bool {
        defer { notificationHandlers[path] = handler }
        return notificationHandlers[path] != nil
    }

    /// Ends the link when the device at `path` disconnects, or bluetoothd stops.
    func watch(_ path: String, for link: GATTStreamLink) {
        watched.append(WatchedDevice(path: path, link: link))
        endLostLinks()
    }

    /// Ends the links of all devices that are no longer connected.
    private func endLostLinks() {
        let lost = watched.filter { !tree.isConnected($0.path) }
        watched.removeAll { $0.link?.isClosed ?? true || !tree.isConnected($0.path) }
        for device in lost { device.link?.lose() }
    }

    // MARK: - Calls

    /// See ``BusSession/call(to:_:_:_:_:timeout:isolation:)``.
    func call(
        to action: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue] = [], timeout: Duration = BusSession.callTimeout
    ) async throws(DiscoveryError) -> [BusValue] {
        guard let session else { throw .noService(cannot: action) }
        return try await session.call(
            to: action, path, interface, member, arguments, timeout: timeout, isolation: self)
    }

    /// See ``BusSession/send(to:_:_:_:_:done:)``.
    func send(
        to action: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue] = [],
        done: @escaping @Sendable (DiscoveryError?) -> Void = { _ in }
    ) {
        guard let session else { return done(.noService(cannot: action)) }
        session.send(to: action, path, interface, member, arguments, done: done)
    }
}
