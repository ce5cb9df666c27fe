import BLESecChannelCore
import BLESecLinks

@testable import BLESec

extension ChannelMachine {
    /// Hands bytes to the machine as a driver does, but also while the machine wants no bytes.
    /// Drops the bytes beyond what an unauthenticated peer may send. Traps if the machine's buffer
    /// is full.
    mutating func feed(_ bytes: [UInt8], now: UInt64) {
        var rest = bytes[...]
        while !rest.isEmpty, !isOver {
            let part = rest
            do throws(LinkError) {
                _ = try receive(now: now) { space throws(LinkError) in
                    let count = min(space.freeCapacity, part.count)
                    guard count > 0 else { return .wouldBlock }
                    for byte in part.prefix(count) { space.append(byte) }
                    rest = part.dropFirst(count)
                    return .bytes
                }
            } catch {
                preconditionFailure("\(error)")
            }
            guard rest.count < part.count else { return }
        }
    }

    /// Takes at most `limit` bytes of the next SDU, as a link does.
    mutating func transmit(atMost limit: Int = .max, now: UInt64) -> [UInt8] {
        var taken: [UInt8] = []
        do throws(LinkError) {
            _ = try transmit(now: now) { bytes throws(LinkError) in
                taken = bytes.extracting(first: limit).array
                return taken.count
            }
        } catch {
            preconditionFailure("\(error)")
        }
        return taken
    }

    /// Lets the machine offer its bytes to a link that takes none of them.
    mutating func block(now: UInt64) { _ = transmit(atMost: 0, now: now) }

    /// How many bytes wait for the link.
    var bytesAwaitingLink: Int { stage?.records.outbound.count ?? 0 }
    /// How many bytes have arrived and are not processed.
    var unprocessedBytes: Int { stage?.records.inbound.count ?? 0 }
    /// The size of the messages that the program has not received, plus an overhead for each
    /// message.
    var unreceivedBytes: Int { session?.inbox.byteCount ?? 0 }
    /// The size of the messages that are not sealed yet, plus an overhead for each message.
    var unsealedBytes: Int { session?.outbox.byteCount ?? 0 }
    /// How many messages have been queued so far.
    var queued: UInt64 { session?.queued ?? 0 }
    /// How many of the queued messages the peer has acknowledged.
    var acknowledged: UInt64 { session?.acknowledged ?? 0 }
    var handshakeHash: [UInt8] { session?.agreement.handshakeHash ?? [] }
    var protocolName: String { session?.agreement.protocolName ?? "" }
    /// How many bytes may arrive before the peer is authenticated.
    var unauthenticatedLimit: Int { (stage as? UnauthenticatedStage)?.unauthenticatedLimit ?? 0 }

    /// Takes the next message out of the inbox, without telling the machine that the program has
    /// taken it.
    func nextMessage() -> [UInt8]? { session?.inbox.next() }

    /// Takes the next message as an application does, and tells the machine that it was taken.
    mutating func takeMessage(now: UInt64) -> [UInt8]? {
        guard let message = popMessage() else { return nil }
        session?.didTakeMessage(now: now)
        return message
    }
}

extension UInt64 {
    /// The number's 8 bytes, the highest first: the payload of an `ack`.
    var bigEndianBytes: [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: self >> (56 - 8 * $0)) } }
}
