internal import BLESecL2CAP
package import BLESecLinks

/// The listener's side of byte streams over GATT: two characteristics for the program's own GATT
/// application.
///
/// Any device nearby can use the characteristics. The server serves one device at a time,
/// identified by the address that bluetoothd reports with each write, and ignores what other
/// devices write meanwhile. It serves only one because bluetoothd sends each notification to every
/// subscribed device. The server does not offer `AcquireWrite`, since BlueZ before 5.69 would pass
/// the writes of all devices through one socket. Used on the loop's thread.
package final class GATTStreamServer: @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    /// The characteristic that the dialer writes to, without response.
    package static let toListener = BluetoothUUID(
        high: 0x7903_D497_2CFF_424E, low: 0x8D0C_F3DF_A624_9C8A)
    /// The characteristic that notifies the dialer.
    package static let toDialer = BluetoothUUID(
        high: 0xD142_2866_955A_43B7, low: 0x90D4_07C2_4725_CE48)

    /// The characteristics to put into ``GATTApplication/characteristics``.
    package var characteristics: [GATTCharacteristic] {
        var toListener = GATTCharacteristic(Self.toListener)
        toListener.write = { [weak self] device, value in self?.take(value, from: device) }
        var toDialer = GATTCharacteristic(Self.toDialer)
        toDialer.subscribe = { [weak self] isSubscribed in
            if !isSubscribed { self?.current?.link?.expectEnd() }
        }
        return [toListener, toDialer]
    }

    /// The published application. Until this property is set, no device is served.
    package weak var application: Registration?

    private let adapter: BluetoothAdapter
    private var bluetoothd: Bluetoothd { adapter.bluetoothd }
    private let onOpen: @Sendable (any Link) -> Void
    private var current: Current?

    /// The device that is served.
    private struct Current {
        let device: DeviceAddress
        let stream: UInt16
        weak var link: GATTStreamLink?
    }

    /// Makes a server whose application is not published yet.
    ///
    /// `onOpen` receives the link of each opened stream, on the loop, and must not block. Releasing
    /// the link ends its stream.
    package init(on adapter: BluetoothAdapter, onOpen: @escaping @Sendable (any Link) -> Void) {
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
            // The device has opened a new stream, so it no longer uses the old one.
            link.lose()
        }
        guard let application, let stream = FragmentStream(answering: opening) else { return }
        let link = GATTStreamLink(
            stream, to: device, loop: bluetoothd.loop, over: carrier(application))
        current = Current(device: device, stream: stream.id, link: link)
        link.open()
        bluetoothd.assumeIsolated { [adapter] in
            if let path = $0.tree.path(of: device, on: adapter.name) { $0.watch(path, for: link) }
        }
        onOpen(link)
    }

    private func carrier(_ application: Registration) -> GATTStreamLink.Carrier {
        GATTStreamLink.Carrier(
            carry: { [bluetoothd = bluetoothd] value, done in
                bluetoothd.assumeIsolated {
                    do throws(DiscoveryError) {
                        try $0.notify(Self.toDialer, of: application, value)
                        done(nil)
                    } catch {
                        done(error)
                    }
                }
            }, close: {})
    }
}
