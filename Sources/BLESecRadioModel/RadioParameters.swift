internal import BLESecL2CAP

/// The parameters of an LE connection and of a connection-oriented channel on it that determine the
/// speed. `docs/radio-model.md` gives the source of each figure.
package struct RadioParameters: Sendable, Equatable {
    /// An uncoded physical layer.
    package enum PHY: String, CaseIterable, Sendable {
        case oneMegabit = "1M"
        case twoMegabit = "2M"

        /// The time that one octet takes on the air, in nanoseconds.
        package var octetTime: UInt64 { self == .oneMegabit ? 8_000 : 4_000 }
        /// Octets of the preamble.
        package var preambleLength: Int { self == .oneMegabit ? 1 : 2 }
    }

    package var phy = PHY.twoMegabit
    /// Nanoseconds from the anchor point of one connection event to the next.
    package var interval: UInt64 = 30_000_000
    /// The largest number of L2CAP octets in a packet, 27 to 251.
    package var dataLength = 251
    /// Whether the link is encrypted, which adds four octets to each packet with a payload.
    package var isLinkEncrypted = false
    /// The fraction of packets that arrive with a wrong CRC, the same in both directions: 0 to 1.
    package var loss = 0.0
    /// The seed of the losses.
    package var seed: UInt64 = 1

    /// The largest SDU that the receiver accepts, in bytes.
    package var mtu = 8_192
    /// The largest SDU that the sender makes, in bytes; at most the MTU.
    package var sdu = L2CAPSocket.maximumSDU
    /// The largest number of bytes in one K-frame after the L2CAP header. In an SDU's first
    /// K-frame, they include the SDU's length field.
    package var mps = 247
    /// How the receiver gives credits.
    package var credits = Credits.ample

    /// The delays in both hosts together, in nanoseconds: from the sender's program to its
    /// controller, and from the receiver's controller to its program. The model adds the whole
    /// delay before the first packet that can carry the data.
    package var hostDelay: UInt64 = 1_000_000

    /// The defaults: 2M, 30 ms, full packets, no losses.
    package init() {}

    /// How a receiver gives credits; each K-frame costs one credit.
    package enum Credits: Sendable, Equatable {
        /// The sender always has enough.
        case ample
        /// As Linux does: MTU / MPS + 1 credits at first; the credits that an SDU used are given
        /// back when the SDU is complete.
        case linux
    }
}

extension RadioParameters {
    /// Nanoseconds of silence between two packets (T_IFS).
    package static let spacing: UInt64 = 150_000
    /// Octets of a packet in addition to preamble and payload: access address, header, CRC.
    package static let packetOverhead = 4 + 2 + 3
    /// Octets of L2CAP's header.
    package static let headerLength = 4
    /// Octets of the length field before an SDU.
    package static let lengthFieldLength = 2
    /// Octets of the L2CAP packet that gives credits.
    package static let creditPacketLength = 12

    /// The time that a packet with `payload` octets of payload, which may be 0, takes on the air, in
    /// nanoseconds.
    package func airTime(_ payload: Int) -> UInt64 {
        let mic = isLinkEncrypted && payload > 0 ? 4 : 0
        return UInt64(phy.preambleLength + Self.packetOverhead + payload + mic) * phy.octetTime
    }

    /// Nanoseconds of a packet and its answer, with the silence after each of them.
    package func exchangeTime(_ payload: Int, answer: Int = 0) -> UInt64 {
        airTime(payload) + Self.spacing + airTime(answer) + Self.spacing
    }

    /// The largest number of SDU bytes per second in a connection event that never ends, without
    /// losses. All K-frames have the same length: the length for which this number is largest. A K-frame
    /// may fill several packets.
    package var goodputLimitOfEndlessEvent: Double {
        (1...mps).map { sduBytes in
            let (fullPackets, rest) = (sduBytes + Self.headerLength).quotientAndRemainder(
                dividingBy: dataLength)
            let time =
                UInt64(fullPackets) * exchangeTime(dataLength)
                + (rest > 0 ? exchangeTime(rest) : 0)
            return Double(sduBytes) / Double(time) * 1e9
        }.max() ?? 0
    }

    /// The SDU bytes per second if each K-frame fills one packet, a connection interval has only
    /// complete exchanges, and nothing is lost.
    package var goodputLimit: Double {
        Double(interval / exchangeTime(dataLength)) * Double(fullPacketSDUBytes) / Double(interval)
            * 1e9
    }

    /// The SDU bytes in a full packet when each K-frame fills a packet.
    private var fullPacketSDUBytes: Int { dataLength - Self.headerLength }

    /// The number of K-frames that carry an SDU of `length` bytes.
    package func frameCount(ofSDU length: Int) -> Int {
        (length + Self.lengthFieldLength + mps - 1) / mps
    }
    /// The credits that the sender has at first.
    package var firstCredits: Int { credits == .ample ? .max / 2 : mtu / mps + 1 }
}
