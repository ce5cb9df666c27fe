internal import BLESecLinks

/// Requests to bluetoothd, which are repeated when it comes back.
extension Bluetoothd {
    /// One thing that an adapter has to do.
    struct Request {
        enum What {
            case advertisement(path: String)
            case application(path: String)
            case scan(anewEvery: Duration?)
        }

        enum State {
            /// The request has to be sent.
            case lapsed
            /// The request was sent.
            case asking
            case granted
            case refused(DiscoveryError)
            /// The request is not needed for now.
            case paused
        }

        let what: What
        let adapter: String
        var state = State.lapsed
        /// Whether bluetoothd may still hold the request from before.
        var wasGranted = false
        /// The last of the calls to bluetoothd for this request, which run one after another.
        var talk: Task<Void, Never>?
        /// Restarts a scan after its interval.
        var renewal: Task<Void, Never>?

        init(_ what: What, on adapter: String) {
            self.what = what
            self.adapter = adapter
        }

        /// The operation, for the sentence "cannot …".
        var doing: String {
            switch what {
            case .advertisement: "advertise on \(adapter)"
            case .application: "publish a GATT service on \(adapter)"
            case .scan: "scan on \(adapter)"
            }
        }
    }

    /// Offers a GATT service on an adapter until ``withdraw(_:)``.
    ///
    /// - Returns: the token for ``withdraw(_:)``.
    /// - Throws: the reason why the adapter cannot publish now. After a success, the service is
    ///   registered again by itself when necessary.
    package func publish(
        _ application: GATTApplication, on adapter: String
    ) async throws(DiscoveryError) -> UInt64 {
        let token = makeToken()
        let path = export(application, token)
        do throws(DiscoveryError) {
            try await register(Request(.application(path: path), on: adapter), as: token)
            return token
        } catch {
            removeExports(of: token)
            throw error
        }
    }

    /// Ends a request, and returns when bluetoothd knows. A second call does nothing.
    package func withdraw(_ token: UInt64) async {
        guard let request = requests.removeValue(forKey: token) else { return }
        removeExports(of: token)
        request.renewal?.cancel()
        await request.talk?.value
        guard case .lapsed = request.state else { return await cancel(request) }
    }

    /// Sends a request for the first time, and throws if it fails.
    func register(_ request: Request, as token: UInt64) async throws(DiscoveryError) {
        if let failure = adapterState(request.adapter).failure(of: request.adapter) {
            throw failure
        }
        requests[token] = request
        settleRequests()
        let deadline = loop.now.advanced(by: Self.callTimeout)
        do throws(DiscoveryError) {
            try await wait(until: deadline, request.doing) { () throws(DiscoveryError) in
                switch requests[token]?.state {
                case .granted: return ()
                case .refused(let error): throw error
                case nil: throw DiscoveryError(.closed, "cannot \(request.doing): it was ended")
                case .lapsed, .asking, .paused: return nil
                }
            }
        } catch {
            await withdraw(token)
            throw error
        }
    }

    /// Sends every request that has to be sent and can be.
    func settleRequests() {
        for (token, request) in requests {
            let isOn = adapterState(request.adapter) == .on
            switch request.state {
            case .lapsed where isOn: ask(token, request)
            case .granted where !isOn: requests[token]?.state = .lapsed
            default: break
            }
        }
    }

    /// Marks every request as not granted any more.
    func lapseRequests() {
        for (token, request) in requests {
            if case .paused = request.state { continue }
            requests[token]?.state = .lapsed
        }
    }

    /// Sends refused requests again.
    func retryRequests() {
        for (token, request) in requests {
            if case .refused = request.state { requests[token]?.state = .lapsed }
        }
        settleRequests()
    }

    /// bluetoothd has dropped an advertisement or an application on its own.
    func lapse(path: String) {
        for (token, request) in requests where request.path == path {
            requests[token]?.state = .refused(
                DiscoveryError(.failed, "cannot \(request.doing): bluetoothd dropped it"))
        }
        retrySoon()
    }

    private func ask(_ token: UInt64, _ request: Request) {
        requests[token]?.state = .asking
        say(token) { bluetoothd in await bluetoothd.finishAsking(token) }
    }

    /// Runs `words` after all earlier calls for the request: bluetoothd must not receive the end of
    /// a request before its beginning.
    private func say(_ token: UInt64, _ words: @escaping @Sendable (Bluetoothd) async -> Void) {
        let before = requests[token]?.talk
        requests[token]?.talk = Task(executorPreference: loop) { [weak self] in
            await before?.value
            if let self { await words(self) }
        }
    }

    private func finishAsking(_ token: UInt64) async {
        guard let request = requests[token], case .asking = request.state else { return }
        let asked = owner
        var state = Request.State.granted
        do throws(DiscoveryError) {
            try await perform(request, token)
        } catch {
            state = .refused(error)
        }
        // If bluetoothd has stopped meanwhile, the answer means nothing.
        guard owner == asked, case .asking = requests[token]?.state else { return }
        requests[token]?.state = state
        if case .refused = state {
            retrySoon()
        } else {
            requests[token]?.wasGranted = true
            if case .scan(let interval?) = request.what { scanAnew(token, in: interval) }
        }
        treeChanged()
    }

    private func perform(_ request: Request, _ token: UInt64) async throws(DiscoveryError) {
        let adapter = Self.path(of: request.adapter)
        let none = BusValue.properties([:])
        switch request.what {
        case .advertisement(let path):
            // bluetoothd refuses an advertisement that it still holds, for example from before the
            // adapter was off.
            if request.wasGranted { await cancel(request) }
            _ = try await call(
                request.doing, adapter, ObjectTree.Interface.advertisingManager,
                "RegisterAdvertisement", [.path(path), none])
        case .application(let path):
            if request.wasGranted { await cancel(request) }
            _ = try await call(
                request.doing, adapter, ObjectTree.Interface.gattManager,
                "RegisterApplication", [.path(path), none])
        case .scan: try await startDiscovery(request, token)
        }
    }

    private func startDiscovery(
        _ request: Request, _ token: UInt64
    ) async throws(DiscoveryError) {
        let adapter = Self.path(of: request.adapter)
        let interface = ObjectTree.Interface.adapter
        let filter = BusValue.properties([
            "Transport": .string("le"), "DuplicateData": .bool(true),
        ])
        _ = try await call(request.doing, adapter, interface, "SetDiscoveryFilter", [filter])
        do throws(DiscoveryError) {
            _ = try await call(request.doing, adapter, interface, "StartDiscovery")
        } catch {
            guard error.busError.hasSuffix(".InProgress") else { throw error }
            // Another scan of this process runs, which is enough.
            let others = requests.filter { $0.key != token }.values
            if others.contains(where: { $0.isScan(on: request.adapter, granted: true) }) { return }
            // Otherwise the kernel is still busy with a request from an earlier bluetoothd.
            await stopDiscovery(request)
            throw error
        }
    }

    private func scanAnew(_ token: UInt64, in interval: Duration) {
        requests[token]?.renewal?.cancel()
        requests[token]?.renewal = Task(executorPreference: loop) { [weak self, loop] in
            guard (try? await loop.sleep(for: interval)) != nil else { return }
            await self?.restartScan(token)
        }
    }

    private func restartScan(_ token: UInt64) async {
        guard let request = requests[token], case .granted = request.state else { return }
        await stopDiscovery(request)
        guard let request = requests[token], case .granted = request.state else { return }
        ask(token, request)
    }

    /// Pauses a scan, and returns when bluetoothd has stopped it.
    func pause(_ token: UInt64) async {
        guard let request = requests[token] else { return }
        requests[token]?.state = .paused
        requests[token]?.renewal?.cancel()
        switch request.state {
        case .granted, .asking: say(token) { bluetoothd in await bluetoothd.cancel(request) }
        case .lapsed, .refused, .paused: break
        }
        await requests[token]?.talk?.value
    }

    /// Continues a paused scan.
    func resume(_ token: UInt64) {
        guard case .paused = requests[token]?.state else { return }
        requests[token]?.state = .lapsed
        settleRequests()
    }

    private func cancel(_ request: Request) async {
        let adapter = Self.path(of: request.adapter)
        switch request.what {
        case .advertisement(let path):
            _ = try? await call(
                request.doing, adapter, ObjectTree.Interface.advertisingManager,
                "UnregisterAdvertisement", [.path(path)])
        case .application(let path):
            _ = try? await call(
                request.doing, adapter, ObjectTree.Interface.gattManager,
                "UnregisterApplication", [.path(path)])
        case .scan:
            // bluetoothd counts one scan for each process, and other requests may still need it.
            if !requests.values.contains(where: { $0.isScan(on: request.adapter) }) {
                await stopDiscovery(request)
            }
        }
    }

    private func stopDiscovery(_ request: Request) async {
        _ = try? await call(
            request.doing, Self.path(of: request.adapter), ObjectTree.Interface.adapter,
            "StopDiscovery")
    }
}

extension Bluetoothd.Request {
    /// Whether this is a scan that is needed now, or, if `granted` is true, one that is running.
    fileprivate func isScan(on adapter: String, granted: Bool = false) -> Bool {
        switch (what, state) {
        case (.scan, .granted): self.adapter == adapter
        case (.scan, .lapsed), (.scan, .asking): self.adapter == adapter && !granted
        default: false
        }
    }

    /// The path of the object that bluetoothd was given.
    fileprivate var path: String? {
        switch what {
        case .advertisement(let path), .application(let path): path
        case .scan: nil
        }
    }
}
