internal import BLESecLinks

/// One dial to a device. Until ``end()``, it notices if the device becomes paired over Bluetooth,
/// even if the link was lost meanwhile and has come back.
///
/// blesec uses no Bluetooth pairing, but a dialed device can cause a pairing: its channel or a
/// characteristic requires encryption, or the device requests it. No program can prevent that:
/// bluetoothd does not report that a pairing begins, and its method `CancelPairing` cancels only
/// pairings that a program has begun.
package actor DeviceDial {
    /// The path of the device's object. It stays the same if the device pairs and reveals another
    /// address.
    nonisolated let path: String
    /// Whether the device was paired when the dial began.
    nonisolated let wasPaired: Bool
    /// Whether there was a link when the dial began.
    private nonisolated let wasConnected: Bool
    private nonisolated let device: RemoteDevice
    /// Called when the device is paired. Nil if the device was paired when the dial began, and after
    /// the call, and when the dial is over.
    private var onPairing: (@Sendable () -> Void)?

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe device.bluetoothd.loop.asUnownedSerialExecutor()
    }

    /// - Parameter properties: the properties of the device's object when the dial begins.
    init(
        _ device: RemoteDevice, _ path: String, _ properties: ObjectTree.Properties,
        onPairing: @escaping @Sendable () -> Void
    ) {
        func flag(_ name: String) -> Bool { properties[name]?.bool ?? false }
        self.device = device
        self.path = path
        wasPaired = flag("Paired") || flag("Bonded")
        wasConnected = flag("Connected")
        self.onPairing = wasPaired ? nil : onPairing
    }

    /// Whether a failure of the dial removes the device even if the device is paired by then: true
    /// if the device was not paired and had no link when the dial began.
    package nonisolated var removesPairedDevice: Bool { !wasPaired && !wasConnected }

    /// The device is paired now.
    func paired() { onPairing.take()?() }

    /// The dial is over: what happens to the device from now on does not concern the dial.
    package func end() { onPairing = nil }

    /// The error of the dial if the device was paired while the dial lasted. `isRemoved` says
    /// whether ``RemoteDevice/forget(after:)`` has removed the device.
    package nonisolated func pairingFailure(isRemoved: Bool) -> DiscoveryError {
        let advice = "decline when you are asked whether to pair"
        let outcome =
            isRemoved
            ? "and was removed from bluetoothd: \(advice)"
            : "but blesec uses no such pairing: \(advice); `bluetoothctl devices Paired` shows "
                + "whether it is still paired"
        return DiscoveryError(
            .pairing, "\(device.address) was paired over Bluetooth during the dial, \(outcome)")
    }
}
