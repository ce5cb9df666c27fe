/// An event that may answer LE Read PHY.
enum PHYAnswer: Equatable {
    case phys(LinkPHYs)
    case refused
    /// It answers another command, or is no valid answer.
    case other

    /// LE Read PHY: OGF 8, OCF 0x30.
    static let opcode: UInt16 = 0x2030

    /// The packet of the command: its type, its opcode, the length of its parameter, and the handle.
    static func command(_ handle: UInt16) -> [UInt8] {
        [1, 0x30, 0x20, 2, UInt8(truncatingIfNeeded: handle), UInt8(handle >> 8)]
    }

    /// Reads a packet from the adapter, which answers every process that has asked.
    init(_ packet: ArraySlice<UInt8>, to handle: UInt16) {
        let bytes = Array(packet)
        let handleBytes = [UInt8(truncatingIfNeeded: handle), UInt8(handle >> 8)]
        guard bytes.count >= 7, bytes[0] == 4 else {
            self = .other
            return
        }
        switch bytes[1] {
        case 0x0E where bytes.count >= 9 && bytes[4...5] == [0x30, 0x20]:
            // Command Complete: the count of commands, the opcode, the status, the handle, the PHYs.
            if bytes[7...8] != handleBytes[...] {
                self = .other
            } else if bytes[6] == 0, bytes.count >= 11, let sending = PHY(rawValue: bytes[9]),
                let receiving = PHY(rawValue: bytes[10])
            {
                self = .phys(LinkPHYs(sending: sending, receiving: receiving))
            } else {
                self = .refused
            }
        case 0x0F where bytes[3] != 0 && bytes[5...6] == [0x30, 0x20]:
            // Command Status with an error: the status, the count of commands, the opcode.
            self = .refused
        default: self = .other
        }
    }
}
