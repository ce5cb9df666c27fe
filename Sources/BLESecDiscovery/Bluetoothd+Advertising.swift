internal import BLESecLinks

/// Being heard.
extension Bluetoothd {
    /// How long a kernel goes on with one of several advertisements before it takes the next
    /// (HCI_DEFAULT_ADV_DURATION, 2 s), and a little more.
    private static let turn = Duration.milliseconds(2_500)

    /// Advertises on an adapter, until ``withdraw(_:)``.
    ///
    /// - Returns: by which it is withdrawn.
    /// - Throws: what keeps the adapter from it now. Once it was advertised, it comes back by itself.
    package func advertise(
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

    /// A link of an adapter has ended: asks for its advertisements again, a little later.
    ///
    /// A kernel that takes turns with several advertisements, of whichever process, goes on with the
    /// one by which a link came when that ends. If it was withdrawn meanwhile, the kernel sends what
    /// it sent last, from a random address to which nobody can connect, and nothing else any more.
    /// Something that is asked for before the turn is over is not begun with either.
    func linkEnded(on adapter: String) {
        guard requests.values.contains(where: { $0.isAdvertisement(on: adapter) }) else { return }
        guard linksEnded[adapter] == nil else {
            linksEnded[adapter] = true
            return
        }
        linksEnded[adapter] = false
        Task(executorPreference: loop) { [weak self, loop] in
            try? await loop.sleep(for: Self.turn)
            await self?.advertiseAnew(on: adapter)
        }
    }

    private func advertiseAnew(on adapter: String) {
        for (token, request) in requests where request.isAdvertisement(on: adapter) {
            if case .granted = request.state { requests[token]?.state = .lapsed }
        }
        settleRequests()
        // One that has ended in the meantime wants another turn.
        if linksEnded.removeValue(forKey: adapter) == true { linkEnded(on: adapter) }
    }
}

extension Bluetoothd.Request {
    fileprivate func isAdvertisement(on adapter: String) -> Bool {
        if case .advertisement = what { self.adapter == adapter } else { false }
    }
}
