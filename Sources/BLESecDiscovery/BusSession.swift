internal import BLESecLinks

/// A session with bluetoothd on the message bus: finds bluetoothd, also after a restart of
/// bluetoothd or of the bus, and calls bluetoothd's methods. Used on the loop's thread.
final class BusSession {
    /// How long bluetoothd may take for an operation that involves no other device.
    static let callTimeout = Duration.seconds(10)
    /// The delay before another attempt to reach the bus, or to repeat what has failed.
    private static let retryDelay = Duration.seconds(1)
    /// The shortest time between a listing of the objects and the next one that
    /// ``listObjectsSoon()`` causes.
    private static let listingInterval = Duration.seconds(10)

    private let loop: EventLoop
    /// Nil once closed.
    private weak var bluetoothd: Bluetoothd?
    private var bus: Bus?
    /// The unique name of bluetoothd on the bus; nil until bluetoothd runs and its objects are known.
    private(set) var owner: String?
    /// The unique name of the bluetoothd whose objects are known or are being listed. A reply of an
    /// earlier bluetoothd means nothing.
    private var listedName: String?
    /// Why the last ended attempt to list bluetoothd's objects has failed. Nil if that attempt has
    /// succeeded, if none has ended yet, or if bluetoothd does not run.
    private(set) var listingFailure: DiscoveryError?
    /// Fires when what has failed has to be repeated; see ``retrySoon()``.
    private var retryTimer: LoopTimer?
    /// When bluetoothd was last asked to list its objects.
    private var lastListing: MonotonicTime?
    /// Fires when bluetoothd has to be asked for its objects again; see ``listObjectsSoon()``.
    private var listingTimer: LoopTimer?
    private var isClosed = false

    init(of bluetoothd: Bluetoothd) {
        self.bluetoothd = bluetoothd
        loop = bluetoothd.loop
        retryTimer = LoopTimer(loop: loop, handler: self)
        listingTimer = LoopTimer(loop: loop, handler: self)
        open()
    }

    /// Ends the session, without a call to ``Bluetoothd``. A second call does nothing.
    func close() {
        isClosed = true
        bluetoothd = nil
        retryTimer?.disarm()
        listingTimer?.disarm()
        bus?.close()
        bus = nil
        owner = nil
    }

    // MARK: - Finding bluetoothd

    /// Connects to the bus. After a failure, tries again after ``retryDelay``, unless libsystemd
    /// cannot be loaded.
    private func open() {
        guard !isClosed, bus == nil else { return }
        do throws(BusError) {
            let bus = try Bus(loop: loop, session: self)
            self.bus = bus
            for rule in [
                "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',"
                    + "arg0='org.bluez'",
                "type='signal',sender='org.bluez'",
            ] { bus.call(.toBus("AddMatch", [.string(rule)]), timeout: Self.callTimeout) { _ in } }
            askOwner()
        } catch {
            listingEnded(with: nil)
            if Bus.loadFailure == nil { retryTimer?.arm(in: Self.retryDelay) }
        }
    }

    private func askOwner() {
        let call = Bus.Call.toBus("GetNameOwner", [.string("org.bluez")])
        bus?.call(call, timeout: Self.callTimeout) { [weak self] result in
            switch result {
            case .success(let values): self?.learnedOwner(values.first?.text)
            case .failure(let error):
                // If bluetoothd does not run, the bus will signal when bluetoothd starts. After any
                // other error, ask again.
                let isAbsent = error.name.hasSuffix(".NameHasNoOwner")
                self?.learnedOwner(
                    nil,
                    failure: isAbsent
                        ? nil : DiscoveryError(bus: error, cannot: "ask D-Bus for bluetoothd"))
                if !isAbsent { self?.retrySoon() }
            }
        }
    }

    /// bluetoothd has the unique name `name`. If `name` is nil or empty, bluetoothd does not run, or
    /// it is not known whether bluetoothd runs; in the second case, `failure` is the reason.
    private func learnedOwner(_ name: String?, failure: DiscoveryError? = nil) {
        // The same name means that the same bluetoothd still runs, since a unique name is never
        // used again.
        if let name, name == owner { return }
        forget()
        guard let name, !name.isEmpty else {
            listingFailure = failure
            listingEnded(with: nil)
            return
        }
        listObjects(of: name)
    }

    private func forget() {
        owner = nil
        listedName = nil
        bluetoothd?.assumeIsolated { $0.forget() }
    }

    private func listingEnded(with objects: BusValue?) {
        bluetoothd?.assumeIsolated { $0.listingEnded(with: objects) }
    }

    /// Asks bluetoothd for all objects again, to replace the known ones.
    func listObjects() { if let owner { listObjects(of: owner) } }

    /// Asks bluetoothd for all objects again, but not before ``listingInterval`` has passed since
    /// the last question: nearby devices can cause any number of calls of this function.
    func listObjectsSoon() {
        guard owner != nil, listingTimer?.deadline == nil else { return }
        listingTimer?.arm(at: lastListing?.advanced(by: Self.listingInterval) ?? loop.now)
    }

    private func listObjects(of name: String) {
        listedName = name
        lastListing = loop.now
        listingTimer?.disarm()
        let call = Bus.Call(
            destination: name, path: "/", interface: Interface.objectManager,
            member: "GetManagedObjects")
        bus?.call(call, timeout: Self.callTimeout) { [weak self] result in
            guard let self, listedName == name else { return }
            switch result {
            case .success(let values):
                owner = name
                listingFailure = nil
                listingEnded(with: values.first ?? .array([], of: "{oa{sa{sv}}}"))
            case .failure(let error):
                listingFailure = DiscoveryError(bus: error, cannot: "ask bluetoothd")
                retrySoon()
                listingEnded(with: nil)
            }
        }
    }

    /// Asks bluetoothd for a connected device that is not among the known objects. Each call
    /// follows a new link of the device, which bounds the number of calls.
    func readDevice(at path: String) {
        guard let owner else { return }
        let call = Bus.Call(
            destination: owner, path: path, interface: Interface.properties, member: "GetAll",
            arguments: [.string(Interface.device)])
        bus?.call(call, timeout: Self.callTimeout) { [weak self] result in
            guard case .success(let values) = result, let properties = values.first else { return }
            self?.bluetoothd?.assumeIsolated { $0.deviceWasRead(at: path, properties) }
        }
    }

    /// After ``retryDelay``, repeats what has failed: the connection to the bus, the question for
    /// bluetoothd's name on the bus, the listing of its objects, and the registrations.
    func retrySoon() {
        if retryTimer?.deadline == nil { retryTimer?.arm(in: Self.retryDelay) }
    }

    // MARK: - Calling bluetoothd

    /// Calls a method of bluetoothd and waits for the reply. `action` completes "cannot …" in the
    /// reason of an error.
    func call(
        to action: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue], timeout: Duration, isolation: isolated (any Actor)
    ) async throws(DiscoveryError) -> [BusValue] {
        guard let owner, let bus else { throw .noService(cannot: action) }
        let call = Bus.Call(
            destination: owner, path: path, interface: interface, member: member,
            arguments: arguments)
        return try await bus.call(call, timeout: timeout, isolation: isolation)
            .mapError { DiscoveryError(bus: $0, cannot: action) }.get()
    }

    /// Calls a method of bluetoothd without waiting. Calls `done` once: with nil after a reply,
    /// otherwise with an error. `action` completes "cannot …" in the reason of this error.
    func send(
        to action: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue], done: @escaping (DiscoveryError?) -> Void
    ) {
        guard let owner, let bus else { return done(.noService(cannot: action)) }
        let call = Bus.Call(
            destination: owner, path: path, interface: interface, member: member,
            arguments: arguments)
        bus.call(call, timeout: Self.callTimeout) { result in
            switch result {
            case .success: done(nil)
            case .failure(let error): done(DiscoveryError(bus: error, cannot: action))
            }
        }
    }

    /// Signals a change of a property of an object of this process.
    func signalChange(
        _ property: String, to value: BusValue, of path: String, _ interface: String
    ) throws(DiscoveryError) {
        guard let bus, owner != nil else {
            throw DiscoveryError(
                .noService, "cannot notify: bluetoothd does not run, or has not listed its objects")
        }
        do throws(BusError) {
            try bus.signal(
                path: path, interface: Interface.properties,
                member: "PropertiesChanged",
                [.string(interface), .properties([property: value]), .strings([])])
        } catch {
            throw DiscoveryError(bus: error, cannot: "notify")
        }
    }

    /// The process ID of bluetoothd; nil if it is not known.
    func processID(isolation: isolated (any Actor)) async -> Int? {
        guard let owner else { return nil }
        let call = Bus.Call.toBus("GetConnectionUnixProcessID", [.string(owner)])
        let result = await bus?.call(call, timeout: Self.callTimeout, isolation: isolation)
        return try? result?.get().first?.integer
    }
}

/// Events of the bus.
extension BusSession: TimerHandler {
    /// A subscribed signal has arrived.
    func busDidSignal(_ message: BusMessage) {
        if message.interface == "org.freedesktop.DBus", message.member == "NameOwnerChanged" {
            // Any process on the bus can send a signal of this name to this process directly.
            guard message.sender == "org.freedesktop.DBus" else { return }
            let names = message.body().map { $0.text ?? "" }
            guard names.count == 3, names[0] == "org.bluez" else { return }
            return learnedOwner(names[2])
        }
        // A signal about bluetoothd's objects counts only if bluetoothd has sent it, and has listed
        // its objects before.
        guard let owner, message.sender == owner else { return }
        bluetoothd?.assumeIsolated { $0.take(message) }
    }

    /// A method of this process was called.
    func busWasCalled(_ message: BusMessage) {
        // The bus also lets root call the objects; here, only calls from bluetoothd are accepted.
        let isOwner = owner != nil && message.sender == owner
        let result = isOwner ? bluetoothd?.assumeIsolated { $0.answer(message) } : nil
        bus?.reply(to: message, with: result ?? .failure(.unknownObject))
    }

    /// The connection has ended. Called once, after all waiting calls have failed.
    func busDidEnd() {
        bus = nil
        listingFailure = nil
        forget()
        listingEnded(with: nil)
        retryTimer?.arm(in: Self.retryDelay)
    }

    func timerFired(_ timer: LoopTimer) {
        if timer === listingTimer { return listObjects() }
        if bus == nil {
            open()
        } else if owner == nil {
            askOwner()
        } else if listingFailure != nil {
            listObjects()
        }
        bluetoothd?.assumeIsolated { $0.retry() }
    }
}
