package import BLESecLinks

/// The listener's end of byte streams over GATT: two characteristics, for an application of one's own.
///
/// Whoever is near can write to them. One device is served at a time, by the address that bluetoothd
/// reports with each write, and what others write meanwhile is passed over: bluetoothd notifies
/// everybody who has subscribed, and below BlueZ 5.69 would hand out one socket for the writes of all.
/// On the loop's thread.
package final class GATTStreamServer: @unchecked Sendable {
    // Sendable because its state is touched on the loop's thread only.

    /// What the dialer writes to, without response.
    package static let toListener = BluetoothUUID(
        high: 0x7903_D497_2CFF_424E, low: 0x8D0C_F3DF_A624_9C8A)
    /// By which the dialer is notified.
    package static let toDialer = BluetoothUUID(
        high: 0xD142_2866_955A_43B7, low: 0x90D4_07C2_4725_CE48)

    /// What ``GATTApplication/characteristics`` has to hold for it.
    package var characteristics: [GATTCharacteristic] {
        var toListener = GATTCharacteristic(Self.toListener)
        toListener.write = { [weak self] device, value in self?.take(value, from: device) }
        var toDialer = GATTCharacteristic(Self.toDialer)
        toDialer.subscribe = { [weak self] isSubscribed in
            if !isSubscribed { self?.current?.link?.expectEnd() }
        }
        return [toListener, toDialer]
    }

    /// What it was published as. Until it is set nobody is served.
    package var application: UInt64?

    private let bluetoothd: Bluetoothd
    private let adapter: String
    private let onOpen: @Sendable (any Link) -> Void
    private var current: Current?

    /// Who is served.
    private struct Current {
        let device: DeviceAddress
        let stream: UInt16
        weak var link: GATTStreamLink?
    }

    /// Makes one that is not published yet.
    ///
    /// `onOpen` gets each stream that is opened, on the loop, and must not block. Who drops it ends it.
    package init(
        _ bluetoothd: Bluetoothd, on adapter: String, onOpen: @escaping @Sendable (any Link) -> Void
    ) {
        self.bluetoothd = bluetoothd
        self.adapter = adapter
        self.onOpen = onOpen
    }

    private func take(_ value: [UInt8], from device: DeviceAddress?) {
        guard let device, let fragment = StreamFragment(value) else { return }
        if fragment.kind == .open { return open(fragment, from: device) }
        guard let current, current.device == device, current.stream == fragment.stream else {
            return
        }
        current.link?.take(fragment)
    }

    private func open(_ opening: StreamFragment, from device: DeviceAddress) {
        if let current, let link = current.link, !link.isClosed, !link.isLost {
            guard current.device == device, current.stream != opening.stream else { return }
            // It has forgotten the stream that it had.
            link.lose()
        }
        guard let application, let stream = FragmentStream(answering: opening) else { return }
        let token = bluetoothd.assumeIsolated { $0.makeToken() }
        let link = GATTStreamLink(
            stream, to: device, loop: bluetoothd.loop, over: carrier(application, token))
        current = Current(device: device, stream: stream.id, link: link)
        link.open()
        bluetoothd.assumeIsolated { [adapter] in
            if let path = $0.device(device, on: adapter) { $0.watch(path, for: link, token) }
        }
        onOpen(link)
    }

    private func carrier(_ application: UInt64, _ token: UInt64) -> GATTStreamLink.Carrier {
        GATTStreamLink.Carrier(
            carry: { [bluetoothd] value, done in
                let error: DiscoveryError? = bluetoothd.assumeIsolated {
                    do throws(DiscoveryError) {
                        try $0.notify(Self.toDialer, of: application, value)
                        return nil
                    } catch {
                        return error
                    }
                }
                done(error)
            },
            close: { [bluetoothd] in
                bluetoothd.assumeIsolated { $0.watched[token] = nil }
            })
    }
}
