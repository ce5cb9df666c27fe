internal import BLESecLinks

/// The requests of this process to bluetoothd, and what bluetoothd has answered to each. A request
/// is to advertise, to publish a GATT service, or to scan.
///
/// Whenever bluetoothd may have dropped a request, because bluetoothd restarted or an adapter came
/// back, the request is sent again.
actor Registrations {
    /// Slightly longer than the turn that the kernel gives to each of several advertisements
    /// (HCI_DEFAULT_ADV_DURATION, 2 s).
    private static let advertisingRotation = Duration.milliseconds(2_500)
    /// How long a program waits for bluetoothd when a request ends, or a scan pauses. If the time
    /// passes before bluetoothd was asked to end the request, bluetoothd is asked later. If the
    /// connection to the bus ends first, bluetoothd drops all requests that came over it.
    static let endTimeout = Duration.seconds(3)

    enum State {
        /// The request has to be sent, for the first time or again.
        case lapsed
        /// The request is about to be sent, or was sent and is not answered yet.
        case asking
        case granted
        case refused(DiscoveryError)
        /// bluetoothd has granted the request, and has later dropped it without being asked to.
        case dropped
        /// The scan was paused, so the request is not needed for now.
        case paused
    }

    struct Entry {
        let request: RegistrationRequest
        var state = State.lapsed {
            didSet {
                switch state {
                case .refused(let error): refusal = error
                case .granted: refusal = nil
                case .lapsed, .asking, .dropped, .paused: break
                }
            }
        }
        /// Why bluetoothd has refused the request; nil once bluetoothd grants it.
        private(set) var refusal: DiscoveryError?
        /// Whether bluetoothd has granted the request before, and may still hold it.
        var wasGranted = false
        /// The last task that ``queue(_:_:)`` has added. These tasks call bluetoothd for this
        /// request, one after another.
        var lastCall: Task<Void, Never>?
        /// How many of these tasks have not ended.
        var pendingCalls = 0
        /// The task that restarts a scan after the request's interval.
        var restartTask: Task<Void, Never>?

        /// bluetoothd has dropped the request without being asked to, for example because it stops.
        mutating func markDropped() { state = .dropped }

        /// Marks a refused or dropped request as one to send again.
        mutating func retry() {
            switch state {
            case .refused, .dropped: state = .lapsed
            case .lapsed, .asking, .granted, .paused: break
            }
        }

        /// Whether this is a scan on `adapter` that is needed now. If `onlyIfGranted` is true, only
        /// a scan that bluetoothd has granted counts.
        func needsScan(on adapter: AdapterName, onlyIfGranted: Bool = false) -> Bool {
            guard request.isScan, request.adapter == adapter else { return false }
            return switch state {
            case .granted: true
            case .lapsed, .asking: !onlyIfGranted
            case .refused, .dropped, .paused: false
            }
        }
    }

    private nonisolated let loop: EventLoop
    private weak let bluetoothd: Bluetoothd?
    private var entries: [UInt64: Entry] = [:]
    /// The ended requests that bluetoothd may still hold.
    private var withdrawals: Set<UInt64> = []
    /// The adapters whose advertisements will soon be registered again, because a link has ended.
    /// The value says whether another link has ended since then.
    private var waitingAdapters: [AdapterName: Bool] = [:]

    /// The loop's executor: the actor runs on the loop's thread only.
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(of bluetoothd: Bluetoothd, loop: EventLoop) {
        self.bluetoothd = bluetoothd
        self.loop = loop
    }

    // MARK: - What is wanted

    /// Sends a request, and sends it again whenever bluetoothd may have dropped it. Throws, and
    /// gives the request up, if the adapter is not on, or bluetoothd refuses the request or does
    /// not answer in time.
    func register(
        _ request: RegistrationRequest, as token: UInt64
    ) async throws(DiscoveryError) -> Registration {
        guard let bluetoothd else { throw .noService(cannot: request.action) }
        if let failure = await bluetoothd.failure(of: request.adapter) { throw failure }
        entries[token] = Entry(request: request)
        settle()
        let deadline = loop.now.advanced(by: BusSession.callTimeout)
        do throws(DiscoveryError) {
            try await bluetoothd.wait(until: deadline, to: request.action) {
                _ throws(DiscoveryError) in
                try self.assumeIsolated { $0.answer(to: request, token) }?.get()
            }
            return Registration(token, of: self, loop: loop)
        } catch {
            await end(token)
            throw error
        }
    }

    /// What bluetoothd has answered to a request; nil while bluetoothd has not answered.
    private func answer(
        to request: RegistrationRequest, _ token: UInt64
    ) -> Result<Void, DiscoveryError>? {
        switch entries[token]?.state {
        case .granted: .success(())
        case .refused(let error): .failure(error)
        case nil: .failure(DiscoveryError(.closed, "cannot \(request.action): it was ended"))
        case .lapsed, .asking, .dropped, .paused: nil
        }
    }

    /// Why bluetoothd has refused a request; nil if bluetoothd has not refused the request, has
    /// granted it since, or the request has ended.
    func refusal(of token: UInt64) -> DiscoveryError? { entries[token]?.refusal }

    /// If `wasRefused` is false, waits until the request counts as refused; otherwise, until
    /// bluetoothd grants it. Throws once the request has ended, or the task is cancelled.
    func waitForChange(of token: UInt64, wasRefused: Bool) async throws(DiscoveryError) {
        let action = "watch a registration"
        guard let bluetoothd else { throw .noService(cannot: action) }
        try await bluetoothd.wait(until: .distantFuture, to: action) {
            _ throws(DiscoveryError) in
            try self.assumeIsolated { $0.change(of: token, wasRefused: wasRefused) }?.get()
        }
    }

    private func change(of token: UInt64, wasRefused: Bool) -> Result<Void, DiscoveryError>? {
        guard let entry = entries[token] else {
            return .failure(DiscoveryError(.closed, "the registration has ended"))
        }
        return (entry.refusal != nil) == wasRefused ? nil : .success(())
    }

    /// Ends a request in this process, and then in bluetoothd. Returns when bluetoothd has
    /// answered, or after ``endTimeout``. A second call does nothing.
    func end(_ token: UInt64) async {
        guard let entry = entries.removeValue(forKey: token) else { return }
        await bluetoothd?.ended(token)
        entry.restartTask?.cancel()
        withdrawals.insert(token)
        Task(executorPreference: loop) {
            await entry.lastCall?.value
            await self.withdraw(entry)
            await self.withdrawalEnded(token)
        }
        // In a task of its own, because the wait must not end if the caller was cancelled.
        await Task(executorPreference: loop) { await self.waitForWithdrawal(of: token) }.value
    }

    private func withdraw(_ entry: Entry) async {
        if case .lapsed = entry.state {
            // bluetoothd can hold a lapsed request only if it has granted the request before, for
            // example before the adapter was switched off.
            let isRunning = state(of: entry.request.adapter) != .noService
            guard entry.wasGranted, isRunning else { return }
        }
        await withdraw(entry.request)
    }

    private func withdrawalEnded(_ token: UInt64) {
        withdrawals.remove(token)
        bluetoothd?.assumeIsolated { $0.wakeWaiting() }
    }

    private func waitForWithdrawal(of token: UInt64) async {
        guard let bluetoothd else { return }
        let deadline = loop.now.advanced(by: Self.endTimeout)
        try? await bluetoothd.wait(until: deadline, to: "end a registration") { _ in
            self.assumeIsolated { !$0.withdrawals.contains(token) } ? () : nil
        }
    }

    /// Pauses a scan. If no other scan over this connection to the bus is needed, asks bluetoothd
    /// to stop the scan. Returns when bluetoothd has answered, or after ``endTimeout``, or when the
    /// task is cancelled.
    func pause(_ token: UInt64) async {
        guard let entry = entries[token] else { return }
        entries[token]?.state = .paused
        entries[token]?.restartTask?.cancel()
        switch entry.state {
        case .granted, .asking: queue(token) { await $0.withdraw(entry.request) }
        case .lapsed, .refused, .dropped, .paused: break
        }
        guard let bluetoothd else { return }
        let deadline = loop.now.advanced(by: Self.endTimeout)
        try? await bluetoothd.wait(until: deadline, to: "pause a scan") { _ in
            self.assumeIsolated { !$0.hasPendingCalls(token) } ? () : nil
        }
    }

    private func hasPendingCalls(_ token: UInt64) -> Bool {
        (entries[token]?.pendingCalls ?? 0) > 0
    }

    func resume(_ token: UInt64) {
        guard case .paused = entries[token]?.state else { return }
        entries[token]?.state = .lapsed
        settle()
    }

    // MARK: - What has happened

    /// Sends every request that has to be sent and can be sent now, and marks the requests of
    /// adapters that are off as not granted any more.
    func settle() {
        for (token, entry) in entries {
            let isOn = state(of: entry.request.adapter) == .on
            switch entry.state {
            case .lapsed where isOn: ask(token)
            case .granted where !isOn: entries[token]?.state = .lapsed
            default: break
            }
        }
    }

    /// bluetoothd has stopped: marks every request, except paused ones, as one to send again.
    func lapse() {
        for (token, entry) in entries {
            if case .paused = entry.state { continue }
            entries[token]?.state = .lapsed
        }
    }

    /// Sends refused and dropped requests again.
    func retry() {
        for token in entries.keys { entries[token]?.retry() }
        settle()
    }

    /// bluetoothd has dropped the object at `path` without being asked to, for example because it
    /// stops. Registers the object again, after a delay.
    func dropped(_ path: String) {
        for (token, entry) in entries where entry.request.path == path {
            entries[token]?.markDropped()
        }
        bluetoothd?.assumeIsolated { $0.retrySoon() }
    }

    /// A link of an adapter has ended: registers the adapter's advertisements again, a little
    /// later.
    ///
    /// The kernel alternates between the advertisements of all processes. When a link ends, the
    /// kernel continues with the advertisement through which the link was made. If that
    /// advertisement was withdrawn meanwhile, the kernel sends only the advertisement that it sent
    /// last, from a random address to which nobody can connect. Also, the kernel does not send an
    /// advertisement that is registered within one turn after the link's end, so this function
    /// waits for one turn.
    func linkEnded(on adapter: AdapterName) {
        guard !advertisements(on: adapter).isEmpty else { return }
        guard waitingAdapters[adapter] == nil else {
            waitingAdapters[adapter] = true
            return
        }
        waitingAdapters[adapter] = false
        Task(executorPreference: loop) { [weak self, loop] in
            try? await loop.sleep(for: Self.advertisingRotation)
            await self?.advertiseAnew(on: adapter)
        }
    }

    private func advertiseAnew(on adapter: AdapterName) {
        for token in advertisements(on: adapter) {
            if case .granted = entries[token]?.state { entries[token]?.state = .lapsed }
        }
        settle()
        // If a link has ended in the meantime, wait for one more turn.
        if waitingAdapters.removeValue(forKey: adapter) == true { linkEnded(on: adapter) }
    }

    private func advertisements(on adapter: AdapterName) -> [UInt64] {
        entries.filter { $0.value.request.isAdvertisement && $0.value.request.adapter == adapter }
            .map(\.key)
    }

    // MARK: - Calls

    private func state(of adapter: AdapterName) -> AdapterState {
        bluetoothd?.assumeIsolated { $0.state(of: adapter) } ?? .noService
    }

    /// The unique bus name of the running bluetoothd, which changes with each restart.
    private var owner: String? { bluetoothd?.assumeIsolated { $0.owner } }

    private func ask(_ token: UInt64) {
        entries[token]?.state = .asking
        queue(token) { await $0.sendRequest(token) }
    }

    /// Runs `calls` after all earlier calls for the request: bluetoothd must not receive the method
    /// that ends a request before the method that begins it.
    private func queue(
        _ token: UInt64, _ calls: @escaping @Sendable (Registrations) async -> Void
    ) {
        let previousCall = entries[token]?.lastCall
        entries[token]?.pendingCalls += 1
        entries[token]?.lastCall = Task(executorPreference: loop) { [weak self] in
            await previousCall?.value
            guard let self else { return }
            await calls(self)
            await self.callsEnded(token)
        }
    }

    /// The calls that one ``queue(_:_:)`` has added for the request have ended.
    private func callsEnded(_ token: UInt64) {
        entries[token]?.pendingCalls -= 1
        bluetoothd?.assumeIsolated { $0.wakeWaiting() }
    }

    private func sendRequest(_ token: UInt64) async {
        guard let entry = entries[token], case .asking = entry.state else { return }
        let askedOwner = owner
        var state = State.granted
        do throws(DiscoveryError) {
            try await begin(entry, token)
        } catch {
            state = .refused(error)
        }
        // If bluetoothd has stopped meanwhile, the answer means nothing.
        guard owner == askedOwner, case .asking = entries[token]?.state else { return }
        entries[token]?.state = state
        if case .refused = state {
            await bluetoothd?.retrySoon()
        } else {
            entries[token]?.wasGranted = true
            if let interval = entry.request.interval { scheduleRestart(token, in: interval) }
        }
        await bluetoothd?.treeChanged()
    }

    private func begin(_ entry: Entry, _ token: UInt64) async throws(DiscoveryError) {
        let request = entry.request
        // bluetoothd refuses an advertisement that it still holds, for example from before the
        // adapter was off.
        if entry.wasGranted, !request.isScan { await withdraw(request) }
        if let filter = request.filter { try await call(filter, request) }
        do throws(DiscoveryError) {
            try await call(request.begin, request)
        } catch {
            guard request.isScan, error.busError.hasSuffix(".InProgress") else { throw error }
            // bluetoothd has one scan for each connection to the bus: if another scan over this
            // connection runs, the requested scan runs too.
            let others = entries.filter { $0.key != token }.values
            let isScanning = others.contains {
                $0.needsScan(on: request.adapter, onlyIfGranted: true)
            }
            if isScanning { return }
            // Otherwise the kernel is still busy with a request from an earlier bluetoothd.
            try? await call(request.end, request)
            throw error
        }
    }

    /// Asks bluetoothd to end what it does for a request.
    private func withdraw(_ request: RegistrationRequest) async {
        // For bluetoothd, all scans over this connection are one scan, which other requests may
        // still need.
        if request.isScan, entries.values.contains(where: { $0.needsScan(on: request.adapter) }) {
            return
        }
        try? await call(request.end, request)
    }

    private func call(
        _ method: RegistrationRequest.Method, _ request: RegistrationRequest
    ) async throws(DiscoveryError) {
        guard let bluetoothd else { throw .noService(cannot: request.action) }
        _ = try await bluetoothd.call(
            to: request.action, request.adapter.path, request.interface, method.name,
            method.arguments)
    }

    private func scheduleRestart(_ token: UInt64, in interval: Duration) {
        entries[token]?.restartTask?.cancel()
        entries[token]?.restartTask = Task(executorPreference: loop) { [weak self, loop] in
            guard (try? await loop.sleep(for: interval)) != nil else { return }
            await self?.restartScan(token)
        }
    }

    private func restartScan(_ token: UInt64) {
        guard let entry = entries[token], case .granted = entry.state else { return }
        queue(token) { try? await $0.call(entry.request.end, entry.request) }
        ask(token)
    }
}
