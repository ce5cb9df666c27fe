/// What an HCI event means for a process that has sent LE Read PHY.
enum PHYAnswer: Equatable {
    /// The answer.
    case phys(LinkPHYs)
    /// The adapter has rejected the command, or its answer has no known PHYs.
    case refused
    /// The event answers another command, or is not valid.
    case other

    /// The opcode of LE Read PHY: OGF 8, OCF 0x30.
    static let opcode: UInt16 = 0x2030

    /// The command's packet: packet type, opcode, length of the parameter, and the link's handle.
    static func command(_ handle: UInt16) -> [UInt8] {
        [1, 0x30, 0x20, 2, UInt8(truncatingIfNeeded: handle), UInt8(handle >> 8)]
    }

    /// Reads an event packet. The event may answer a command of another process, because the kernel
    /// passes an adapter's events to the sockets of all processes.
    init(_ packet: ArraySlice<UInt8>, to handle: UInt16) {
        let bytes = Array(packet)
        let handleBytes = [UInt8(truncatingIfNeeded: handle), UInt8(handle >> 8)]
        // The packet type 4 is an event; the event's code follows.
        guard bytes.count >= 7, bytes[0] == 4 else {
            self = .other
            return
        }
        switch bytes[1] {
        case 0x0E where (7...8).contains(bytes.count) && bytes[4...5] == [0x30, 0x20]:
            // Command Complete without a handle: an adapter that does not know the command may
            // answer with the status alone.
            self = bytes[6] == 0 ? .other : .refused
        case 0x0E where bytes.count >= 9 && bytes[4...5] == [0x30, 0x20]:
            // Command Complete: number of commands, opcode, status, handle, the two PHYs.
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
            // Command Status with an error: status, number of commands, opcode.
            self = .refused
        default: self = .other
        }
    }
}
