internal import BLESecL2CAP

/// An LE connection and a connection-oriented channel on it, as far as they decide how fast bytes
/// move. `docs/radio-model.md` says where each figure is from.
struct RadioParameters: Sendable, Equatable {
    /// An uncoded physical layer.
    enum PHY: String, CaseIterable, Sendable {
        case oneMegabit = "1M"
        case twoMegabit = "2M"

        /// Nanoseconds of one octet.
        var octetTime: UInt64 { self == .oneMegabit ? 8_000 : 4_000 }
        /// Octets of preamble.
        var preamble: Int { self == .oneMegabit ? 1 : 2 }
    }

    var phy = PHY.twoMegabit
    /// Nanoseconds from the anchor point of one connection event to the next.
    var interval: UInt64 = 30_000_000
    /// The most octets of L2CAP that a packet carries, 27 to 251.
    var dataLength = 251
    /// Whether the link itself is encrypted, which costs a packet with a payload four octets.
    var isLinkEncrypted = false
    /// The share of packets that arrive with a wrong CRC, in either direction.
    var loss = 0.0
    /// Where the losses begin.
    var seed: UInt64 = 1

    /// The largest SDU that the receiver takes, in bytes.
    var mtu = 8_192
    /// The largest SDU that the sender makes, in bytes; at most the MTU.
    var sdu = L2CAPLink.maximumSDU
    /// The most bytes of an SDU and its length that one K-frame carries.
    var mps = 247
    var credits = Credits.ample

    /// Nanoseconds between what a host hears and the first packet that can answer it: the way through
    /// the controller's buffers and the kernel, and back.
    var hostDelay: UInt64 = 1_000_000

    /// How a receiver gives credits, one for a K-frame.
    enum Credits: Sendable, Equatable {
        /// Never too few.
        case ample
        /// As Linux does: as many as the longest SDU takes and one more, topped up when an SDU is
        /// complete.
        case linux
    }
}

extension RadioParameters {
    /// Nanoseconds of silence between two packets (T_IFS).
    static let spacing: UInt64 = 150_000
    /// Octets of a packet beside preamble and payload: access address, header, CRC.
    static let packetOverhead = 4 + 2 + 3
    /// Octets of L2CAP's own header.
    static let headerLength = 4
    /// Octets of an SDU's length before its first byte.
    static let lengthField = 2
    /// Octets of the L2CAP packet that gives credits.
    static let creditPacket = 12

    /// Nanoseconds on the air of a packet with so many octets of payload, which may be none.
    func airTime(_ payload: Int) -> UInt64 {
        let mic = isLinkEncrypted && payload > 0 ? 4 : 0
        return UInt64(phy.preamble + Self.packetOverhead + payload + mic) * phy.octetTime
    }

    /// Nanoseconds of a packet and its answer, with the silence behind each.
    func exchangeTime(_ payload: Int, answer: Int = 0) -> UInt64 {
        airTime(payload) + Self.spacing + airTime(answer) + Self.spacing
    }

    /// Bytes a second that a channel moves at the most in packets that are all full, none of them
    /// lost, where connection events have no end.
    var endlessLimit: Double {
        Double(payload) / Double(exchangeTime(dataLength)) * 1e9
    }

    /// The same with as many whole exchanges as fit each connection interval.
    var limit: Double {
        Double(interval / exchangeTime(dataLength)) * Double(payload) / Double(interval) * 1e9
    }

    /// What a full packet carries of SDUs when K-frames are as long as packets.
    private var payload: Int { dataLength - Self.headerLength }

    /// What an SDU takes in K-frames.
    func frames(_ sdu: Int) -> Int { (sdu + Self.lengthField + mps - 1) / mps }

    /// The credits that a channel begins with.
    var firstCredits: Int {
        switch credits {
        case .ample: .max / 2
        case .linux: mtu / mps + 1
        }
    }
}
