internal import BLESec
internal import BLESecL2CAP

/// The sizes and the results of bulk transfers over L2CAP with several MTUs and SDU sizes.
struct SDUScenario: Sendable {
    /// The receiver's MTU, and the largest SDU of the sender.
    struct Sizes: Sendable, Hashable {
        var mtu = L2CAPSocket.maximumReceiveMTU
        var sdu = L2CAPSocket.maximumSDU
    }

    /// The figures of one engine with one MTU and one SDU size.
    struct Result: Sendable {
        var sizes: Sizes
        var link: LinkScenario.Result
    }

    static let messageSize = 16_384
    private static let sizes = [512, 1_024, 2_048, L2CAPSocket.maximumSDU, 8_192]

    /// All combinations: each MTU, with every SDU size up to the MTU.
    static let all = sizes.flatMap { mtu in
        sizes.filter { $0 <= mtu }.map { Sizes(mtu: mtu, sdu: $0) }
    }
}
