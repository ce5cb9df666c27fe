internal import BLESec
internal import BLESecL2CAP

/// Bulk over l2cap in SDUs of several sizes, to receivers of several MTUs.
struct SDUScenario: Sendable {
    /// The largest SDU that a receiver takes, and the largest that a sender sends.
    struct Sizes: Sendable, Hashable {
        var mtu = L2CAPLink.maximumReceiveMTU
        var sdu = L2CAPLink.maximumSDU
    }

    /// What one engine does with SDUs of one size.
    struct Result: Sendable {
        var sizes: Sizes
        var link: LinkScenario.Result
    }

    /// Bytes of a message.
    static let messageSize = 16_384
    private static let steps = [512, 1_024, 2_048, L2CAPLink.maximumSDU, 8_192]

    /// All that is measured: each MTU, with every SDU that it takes.
    static let all = steps.flatMap { mtu in
        steps.filter { $0 <= mtu }.map { Sizes(mtu: mtu, sdu: $0) }
    }
}
