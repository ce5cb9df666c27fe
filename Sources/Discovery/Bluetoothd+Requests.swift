internal import Links

/// What bluetoothd is asked for, and asked for again when it comes back.
extension Bluetoothd {
    /// One thing that is wanted of an adapter.
    struct Request {
        enum What {
            case advertisement(path: String)
            case application(path: String)
            case scan(anewEvery: Duration?)
        }

        enum State {
            /// It has to be asked for.
            case lapsed
            /// It was asked for.
            case asking
            case granted
            case refused(DiscoveryError)
            /// It is not wanted for now.
            case paused
        }

        let what: What
        let adapter: String
        var state = State.lapsed
        /// bluetoothd may still have it from before.
        var wasGranted = false
        /// How often it was asked for.
        var asked = 0

        init(_ what: What, on adapter: String) {
            self.what = what
            self.adapter = adapter
        }

        /// For "cannot …".
        var doing: String {
            switch what {
            case .advertisement: "advertise on \(adapter)"
            case .application: "publish a GATT service on \(adapter)"
            case .scan: "scan on \(adapter)"
            }
        }
    }

    /// Offers a GATT service on an adapter, until ``withdraw(_:)``.
    ///
    /// - Returns: by which it is withdrawn.
    /// - Throws: what keeps the adapter from it now. Once it was published, it comes back by itself.
    public func publish(
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

    /// Advertises on an adapter, until ``withdraw(_:)``.
    ///
    /// - Returns: by which it is withdrawn.
    /// - Throws: what keeps the adapter from it now. Once it was advertised, it comes back by itself.
    public func advertise(
        _ advertisement: Advertisement, on adapter: String
    ) async throws(DiscoveryError) -> UInt64 {
        let token = makeToken()
        let path = export(advertisement, token)
        do throws(DiscoveryError) {
            try await register(Request(.advertisement(path: path), on: adapter), as: token)
            return token
        } catch {
            removeExports(of: token)
            throw error
        }
    }

    /// Ends what was asked for, and returns when bluetoothd knows. Again: does nothing.
    public func withdraw(_ token: UInt64) async {
        guard let request = requests.removeValue(forKey: token) else { return }
        removeExports(of: token)
        guard case .lapsed = request.state else { return await cancel(request) }
    }

    /// Asks for the first time, and fails if that does.
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

    /// Asks for what has to be asked for and can be.
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

    /// Nothing that was granted is, any more.
    func lapseRequests() {
        for (token, request) in requests {
            if case .paused = request.state { continue }
            requests[token]?.state = .lapsed
        }
    }

    /// Asks again for what was refused.
    func retryRequests() {
        for (token, request) in requests {
            if case .refused = request.state { requests[token]?.state = .lapsed }
        }
        settleRequests()
    }

    /// bluetoothd has dropped an advertisement or an application by itself.
    func lapse(path: String) {
        for (token, request) in requests where request.path == path {
            requests[token]?.state = .refused(
                DiscoveryError(.failed, "cannot \(request.doing): bluetoothd dropped it"))
        }
        retrySoon()
    }

    private func ask(_ token: UInt64, _ request: Request) {
        requests[token]?.state = .asking
        requests[token]?.asked += 1
        Task(executorPreference: loop) { [weak self] in
            await self?.finishAsking(token, request)
        }
    }

    private func finishAsking(_ token: UInt64, _ request: Request) async {
        let asked = owner
        var state = Request.State.granted
        do throws(DiscoveryError) {
            try await perform(request)
        } catch {
            state = .refused(error)
        }
        // Meanwhile bluetoothd may have gone, and the answer means nothing.
        guard owner == asked else { return }
        switch requests[token]?.state {
        case .asking: break
        case .paused, nil:
            // It was called off while it was asked for, perhaps too early for bluetoothd.
            if case .granted = state { await cancel(request) }
            return
        case .lapsed, .granted, .refused: return
        }
        requests[token]?.state = state
        if case .granted = state { requests[token]?.wasGranted = true }
        if case .refused = state { retrySoon() }
        if case .scan(let interval?) = request.what {
            scanAnew(token, after: interval, asked: requests[token]?.asked ?? 0)
        }
        treeChanged()
    }

    private func perform(_ request: Request) async throws(DiscoveryError) {
        let adapter = Self.path(of: request.adapter)
        let none = BusValue.properties([:])
        switch request.what {
        case .advertisement(let path):
            // One that survived the adapter's rest would be refused as a second one.
            if request.wasGranted { await cancel(request) }
            _ = try await call(
                request.doing, adapter, ObjectTree.Interface.advertisingManager,
                "RegisterAdvertisement", [.path(path), none])
        case .application(let path):
            if request.wasGranted { await cancel(request) }
            _ = try await call(
                request.doing, adapter, ObjectTree.Interface.gattManager,
                "RegisterApplication", [.path(path), none])
        case .scan: try await startDiscovery(request)
        }
    }

    private func startDiscovery(_ request: Request) async throws(DiscoveryError) {
        let adapter = Self.path(of: request.adapter)
        let interface = ObjectTree.Interface.adapter
        let filter = BusValue.properties([
            "Transport": .string("le"), "DuplicateData": .bool(true),
        ])
        _ = try await call(request.doing, adapter, interface, "SetDiscoveryFilter", [filter])
        do throws(DiscoveryError) {
            _ = try await call(request.doing, adapter, interface, "StartDiscovery")
        } catch {
            // Another scan of this process goes on.
            guard error.busError.hasSuffix(".InProgress") else { throw error }
        }
    }

    private func scanAnew(_ token: UInt64, after interval: Duration, asked: Int) {
        Task(executorPreference: loop) { [weak self, loop] in
            try? await loop.sleep(for: interval)
            await self?.restartScan(token, asked)
        }
    }

    /// Begins a scan anew, unless that was done since it was asked for the `asked`th time.
    private func restartScan(_ token: UInt64, _ asked: Int) async {
        guard let request = requests[token], request.asked == asked,
            case .granted = request.state
        else { return }
        await stopDiscovery(request)
        guard case .granted = requests[token]?.state else { return }
        ask(token, request)
    }

    /// Ends a scan for now, and returns when bluetoothd has.
    func pause(_ token: UInt64) async {
        guard let request = requests[token] else { return }
        requests[token]?.state = .paused
        switch request.state {
        case .granted, .asking: await cancel(request)
        case .lapsed, .refused, .paused: break
        }
    }

    /// Goes on with a scan that was paused.
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
            // bluetoothd counts one scan a process, which others here may still want.
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
    /// Whether it is a scan that is wanted now.
    fileprivate func isScan(on adapter: String) -> Bool {
        switch (what, state) {
        case (.scan, .lapsed), (.scan, .asking), (.scan, .granted): self.adapter == adapter
        default: false
        }
    }

    /// The object that bluetoothd knows it by.
    fileprivate var path: String? {
        switch what {
        case .advertisement(let path), .application(let path): path
        case .scan: nil
        }
    }
}
