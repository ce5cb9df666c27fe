package import BLESecLinks

/// The client of bluetoothd: adapters, advertisements, scans, GATT.
///
/// All requests are repeated when bluetoothd comes back: after a restart of bluetoothd or of the
/// message bus, and after the adapter was off. The actor runs on an event loop, and needs no
/// privilege under Debian's D-Bus policy.
package actor Bluetoothd {
    /// How long bluetoothd may take for an operation that involves no other device.
    static let callTimeout = Duration.seconds(10)
    /// The delay between attempts to reach the bus, or to register what was refused.
    static let retryDelay = Duration.seconds(1)

    /// The event loop that the actor runs on.
    package nonisolated let loop: EventLoop

    var bus: Bus?
    /// The unique name of bluetoothd on the bus; nil until it runs and its objects are known.
    var owner: String?
    var tree = ObjectTree()
    /// Signals every change in the tree, or of a request.
    let changes: ChangeSignal
    /// The requests to bluetoothd, each for as long as it is needed.
    var requests: [UInt64: Request] = [:]
    /// The objects of this process that bluetoothd calls, by path.
    var exported: [String: ExportedObject] = [:]
    var scans: [UInt64: Scan] = [:]
    /// Adapters on which a link has ended recently; true if another link has ended since.
    var linksEnded: [String: Bool] = [:]
    var notified: [String: @Sendable ([UInt8]) -> Void] = [:]
    /// Devices whose links must be told when the device disconnects.
    var watched: [UInt64: WatchedDevice] = [:]
    private var observers: [UInt64: Observer] = [:]

    private var retry: LoopTimer?
    private var nextToken: UInt64 = 0
    private var hasAnswered = false
    private var isClosed = false

    /// An observer of an adapter's state.
    private struct Observer {
        let adapter: String?
        let continuation: AsyncStream<AdapterState>.Continuation
        var last: AdapterState
    }

    /// The actor runs on the loop's thread.
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Connects to bluetoothd. Returns once its objects are known, or once it is known not to run.
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

    /// Ends all requests. A second call does nothing.
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

    // MARK: - Starting and stopping

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
                    // If bluetoothd does not run, the bus signals its start; after any other
                    // error, ask again.
                    if !error.name.hasSuffix(".NameHasNoOwner") { bluetoothd.retrySoon() }
                }
            }
        }
    }

    /// The bus connection has ended.
    func busEnded() {
        bus = nil
        forget()
        answered()
        retry?.arm(in: Self.retryDelay)
    }

    /// bluetoothd has started, or it has stopped if there is no name.
    func tookOwner(_ name: String?) {
        forget()
        guard let name, !name.isEmpty else { return answered() }
        listObjects(of: name)
    }

    /// Asks for all objects of bluetoothd, to replace the known ones.
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

    /// Discards what is known about bluetoothd, which has also lost its state of this process.
    private func forget() {
        owner = nil
        tree.removeAll()
        notified = [:]
        lapseRequests()
        tellOfDisconnections()
    }

    /// Reacts to a change in the tree: settles requests and tells all observers.
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

    /// Retries failed operations after ``retryDelay``.
    func retrySoon() {
        if retry?.deadline == nil { retry?.arm(in: Self.retryDelay) }
    }

    // MARK: - Adapters

    /// The names of the adapters that bluetoothd knows, as in `hci0`.
    package var adapters: [String] {
        tree.paths(of: ObjectTree.Interface.adapter).compactMap(Self.name(of:))
    }

    /// Whether an adapter can be used; nil means the adapter that ``adapter(_:)`` would choose.
    package func adapterState(_ name: String?) -> AdapterState {
        guard owner != nil else { return .noService }
        guard let name = name ?? preferredAdapter,
            let properties = tree[Self.path(of: name), ObjectTree.Interface.adapter]
        else { return .absent }
        if properties["Powered"]?.bool ?? false { return .on }
        return RFKill.blocks(name) ? .blocked : .off
    }

    /// The states of an adapter, from the present one on, without repetition.
    ///
    /// Slow consumers get only the latest state.
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

    /// The name of the adapter to use: `name`, or, when it is nil, the first adapter that is on.
    ///
    /// - Throws: the reason why the adapter cannot be used.
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

    /// `hci0` for `/org/bluez/hci0` and for the paths below it.
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

    /// Waits until `look`, which is called after each change, returns a value.
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
    /// A method call to the bus itself.
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
