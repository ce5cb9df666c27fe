internal import BLESecLinks

/// Advertising.
extension Bluetoothd {
    /// Slightly longer than the kernel sends one of several advertisements before it sends the next
    /// (HCI_DEFAULT_ADV_DURATION, 2 s).
    private static let turn = Duration.milliseconds(2_500)

    /// Advertises on an adapter until ``withdraw(_:)``.
    ///
    /// - Returns: the token for ``withdraw(_:)``.
    /// - Throws: the reason why the adapter cannot advertise now. After a success, the
    ///   advertisement is registered again by itself when necessary.
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

    /// A link of an adapter has ended: registers the adapter's advertisements again, a little
    /// later.
    ///
    /// A kernel alternates between the advertisements of all processes. When a link ends, the
    /// kernel continues with the advertisement through which the link was made. If that
    /// advertisement was withdrawn meanwhile, the kernel keeps sending the last one from a random
    /// address to which nobody can connect, and sends no other. A new advertisement that is
    /// registered before the alternation period has passed is not sent either.
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
        // If a link has ended in the meantime, wait for another period.
        if linksEnded.removeValue(forKey: adapter) == true { linkEnded(on: adapter) }
    }
}

extension Bluetoothd.Request {
    fileprivate func isAdvertisement(on adapter: String) -> Bool {
        if case .advertisement = what { self.adapter == adapter } else { false }
    }
}
