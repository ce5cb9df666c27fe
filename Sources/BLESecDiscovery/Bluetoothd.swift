package import BLESecLinks

/// bluetoothd, as this process uses it: adapters, advertisements, scans, GATT.
///
/// Whatever is asked of it is asked again when it comes back: after a restart of bluetoothd, of the
/// message bus, or after the adapter was off. It lives on an event loop, and needs no privilege under
/// Debian's D-Bus policy.
package actor Bluetoothd {
    /// How long bluetoothd may take for what it does by itself.
    static let callTimeout = Duration.seconds(10)
    /// Between attempts to reach the bus, or to register what was refused.
    static let retryDelay = Duration.seconds(1)

    /// The loop that everything happens on.
    package nonisolated let loop: EventLoop

    var bus: Bus?
    /// The unique name of bluetoothd on the bus, while it runs and its objects are known.
    var owner: String?
    var tree = ObjectTree()
    /// Told of every change in the tree, or of what was asked.
    let changes: ChangeSignal
    /// What is asked of bluetoothd, for as long as it is wanted.
    var requests: [UInt64: Request] = [:]
    /// Objects of ours that bluetoothd calls, by path.
    var exported: [String: ExportedObject] = [:]
    var scans: [UInt64: Scan] = [:]
    /// Adapters of which a link has ended lately, and whether another one has since.
    var linksEnded: [String: Bool] = [:]
    var notified: [String: @Sendable ([UInt8]) -> Void] = [:]
    /// Devices of which somebody has to know when they are not connected any more.
    var watched: [UInt64: WatchedDevice] = [:]
    private var observers: [UInt64: Observer] = [:]

    private var retry: LoopTimer?
    private var nextToken: UInt64 = 0
    private var hasAnswered = false
    private var isClosed = false

    /// Who follows an adapter's state.
    private struct Observer {
        let adapter: String?
        let continuation: AsyncStream<AdapterState>.Continuation
        var last: AdapterState
    }

    /// The loop: everything happens on its thread.
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Connects to bluetoothd, and returns once its objects are known or it is known not to run.
    package static func connect(loop: EventLoop = .shared) async -> Bluetoothd {
        let bluetoothd = Bluetoothd(loop: loop)
        await bluetoothd.start()
        return bluetoothd
    }

    private init(loop: EventLoop) {
        self.loop = loop
        changes = ChangeSignal(loop: loop)
    }

    isolated deinit { close() }

    private func start() async {
        retry = LoopTimer(loop: loop, handler: self)
        open()
        let deadline = loop.now.advanced(by: Self.callTimeout)
        try? await wait(until: deadline, "reach bluetoothd") { hasAnswered ? () : nil }
    }

    /// Ends everything that was asked for. Again: does nothing.
    package func close() {
        isClosed = true
        retry?.disarm()
        bus?.close()
        bus = nil
        forget()
        for scan in scans.values { scan.continuation.finish() }
        scans = [:]
        for observer in observers.values { observer.continuation.finish() }
        observers = [:]
    }

    // MARK: - Coming and going

    /// Connects to the bus, or tries again a little later.
    func open() {
        guard !isClosed, bus == nil else { return }
        do throws(BusError) {
            let bus = try Bus(loop: loop, handler: self)
            self.bus = bus
            for rule in [
                "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',"
                    + "arg0='org.bluez'",
                "type='signal',sender='org.bluez'",
            ] {
                bus.call(.toBus("AddMatch", [.string(rule)]), timeout: Self.callTimeout) { _ in }
            }
            askOwner()
        } catch {
            answered()
            retry?.arm(in: Self.retryDelay)
        }
    }

    /// Asks the bus whether bluetoothd runs.
    private func askOwner() {
        let ask = Bus.Call.toBus("GetNameOwner", [.string("org.bluez")])
        bus?.call(ask, timeout: Self.callTimeout) { [weak self] result in
            self?.assumeIsolated { bluetoothd in
                switch result {
                case .success(let values): bluetoothd.tookOwner(values.first?.text)
                case .failure(let error):
                    bluetoothd.tookOwner(nil)
                    // If it does not run, the bus tells when it does; else this says nothing.
                    if !error.name.hasSuffix(".NameHasNoOwner") { bluetoothd.retrySoon() }
                }
            }
        }
    }

    /// The bus has gone.
    func busEnded() {
        bus = nil
        forget()
        answered()
        retry?.arm(in: Self.retryDelay)
    }

    /// bluetoothd has come, or gone when there is no name.
    func tookOwner(_ name: String?) {
        forget()
        guard let name, !name.isEmpty else { return answered() }
        listObjects(of: name)
    }

    /// Asks for all that bluetoothd has, instead of what was known.
    func listObjects(of name: String) {
        let call = Bus.Call(
            destination: name, path: "/", interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
        bus?.call(call, timeout: Self.callTimeout) { [weak self] result in
            self?.assumeIsolated { $0.tookObjects(of: name, result) }
        }
    }

    private func tookObjects(of name: String, _ result: Result<[BusValue], BusError>) {
        guard case .success(let values) = result else {
            retrySoon()
            return answered()
        }
        owner = name
        tree.replace(with: values.first)
        answered()
    }

    private func answered() {
        hasAnswered = true
        treeChanged()
    }

    /// What bluetoothd knew of us is gone, and so is what we knew of it.
    private func forget() {
        owner = nil
        tree.removeAll()
        notified = [:]
        lapseRequests()
        tellOfDisconnections()
    }

    /// Has everyone look at what is new.
    func treeChanged() {
        settleRequests()
        tellOfDisconnections()
        for (token, observer) in observers {
            let state = adapterState(observer.adapter)
            guard state != observer.last else { continue }
            observers[token]?.last = state
            observer.continuation.yield(state)
        }
        changes.tell()
    }

    func retryNow() {
        if bus == nil {
            open()
        } else if owner == nil {
            askOwner()
        }
        retryRequests()
    }

    /// Looks at what failed again in a moment.
    func retrySoon() {
        if retry?.deadline == nil { retry?.arm(in: Self.retryDelay) }
    }

    // MARK: - Adapters

    /// The adapters that bluetoothd knows, as in `hci0`.
    package var adapters: [String] {
        tree.paths(of: ObjectTree.Interface.adapter).compactMap(Self.name(of:))
    }

    /// Whether an adapter can be used; nil means the one that ``adapter(_:)`` would take.
    package func adapterState(_ name: String?) -> AdapterState {
        guard owner != nil else { return .noService }
        guard let name = name ?? preferredAdapter,
            let properties = tree[Self.path(of: name), ObjectTree.Interface.adapter]
        else { return .absent }
        if properties["Powered"]?.bool ?? false { return .on }
        return RFKill.blocks(name) ? .blocked : .off
    }

    /// The states that an adapter goes through, from the present one on, without repetition.
    ///
    /// Who does not keep up sees the latest.
    package func adapterStates(_ name: String? = nil) -> AsyncStream<AdapterState> {
        let (stream, continuation) = AsyncStream<AdapterState>.makeStream(
            bufferingPolicy: .bufferingNewest(1))
        let token = makeToken()
        continuation.onTermination = { [weak self, loop] _ in
            loop.execute { self?.assumeIsolated { $0.observers[token] = nil } }
        }
        guard !isClosed else {
            continuation.finish()
            return stream
        }
        let state = adapterState(name)
        observers[token] = Observer(adapter: name, continuation: continuation, last: state)
        continuation.yield(state)
        return stream
    }

    /// The name of the adapter to use: the one that is named, or the first that is on.
    ///
    /// - Throws: what keeps it from being used.
    package func adapter(_ name: String?) throws(DiscoveryError) -> String {
        if let failure = adapterState(name).failure(of: name) { throw failure }
        guard let name = name ?? preferredAdapter else {
            throw DiscoveryError(.noAdapter, "this machine has no Bluetooth adapter")
        }
        return name
    }

    private var preferredAdapter: String? {
        adapters.first {
            tree[Self.path(of: $0), ObjectTree.Interface.adapter]?["Powered"]?.bool ?? false
        } ?? adapters.first
    }

    static func path(of adapter: String) -> String { "/org/bluez/" + adapter }

    /// `hci0` of `/org/bluez/hci0` and of what is below it.
    static func name(of path: String) -> String? {
        let parts = path.split(separator: "/")
        return parts.count >= 3 ? String(parts[2]) : nil
    }

    // MARK: - Calling and waiting

    func makeToken() -> UInt64 {
        nextToken += 1
        return nextToken
    }

    /// Calls a method of bluetoothd and waits for the reply.
    func call(
        _ doing: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue] = [], timeout: Duration = callTimeout
    ) async throws(DiscoveryError) -> [BusValue] {
        guard let owner, let bus else { throw .noService(doing) }
        let call = Bus.Call(
            destination: owner, path: path, interface: interface, member: member,
            arguments: arguments)
        let result = await bus.call(call, timeout: timeout, isolation: self)
        do throws(BusError) {
            return try result.get()
        } catch {
            throw DiscoveryError(bus: error, doing)
        }
    }

    /// Waits until `look` finds something, which is asked after each change.
    func wait<Value>(
        until deadline: MonotonicTime, _ doing: String,
        for look: () throws(DiscoveryError) -> Value?
    ) async throws(DiscoveryError) -> Value {
        while true {
            let seen = changes.count
            if let value = try look() { return value }
            guard loop.now < deadline, !isClosed else { throw .timedOut(doing) }
            guard await changes.wait(after: seen, until: deadline, isolation: self) else {
                throw .cancelled(doing)
            }
        }
    }
}

extension Bus.Call {
    /// A call to the bus itself.
    static func toBus(_ member: String, _ arguments: [BusValue]) -> Bus.Call {
        Bus.Call(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus", member: member, arguments: arguments)
    }
}

extension Bluetoothd: BusHandler, TimerHandler {
    nonisolated func busDidSignal(_ message: BusMessage) {
        assumeIsolated { $0.take(signal: message) }
    }

    nonisolated func busWasCalled(_ message: BusMessage) { assumeIsolated { $0.answer(message) } }

    nonisolated func busDidEnd() { assumeIsolated { $0.busEnded() } }

    package nonisolated func timerFired(_ timer: LoopTimer) { assumeIsolated { $0.retryNow() } }
}
