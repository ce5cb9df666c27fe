internal import BLESec
internal import BLESecL2CAP

/// The kind of link between two ends of the bench in one process.
enum Transport: Sendable, Hashable {
    /// Memory, both ends on one loop.
    case memory
    /// A Unix socket, each end on a loop of its own.
    case unix(UnixAddress.Kind)
    /// L2CAP from one Bluetooth adapter of this machine to another.
    case l2cap(from: Adapter, to: Adapter, SDUScenario.Sizes = .init())

    /// The name in reports and in `--transport`.
    var name: String {
        switch self {
        case .memory: "memory"
        case .unix(.stream): "unix"
        case .unix(.seqpacket): "unix-seqpacket"
        case .l2cap: "l2cap"
        }
    }

    var dialingAdapter: Adapter? {
        if case .l2cap(let adapter, _, _) = self { adapter } else { nil }
    }

    /// This transport with another MTU and SDU size; nil unless the transport is L2CAP.
    func with(_ sizes: SDUScenario.Sizes) -> Transport? {
        guard case .l2cap(let dialer, let acceptor, _) = self else { return nil }
        return .l2cap(from: dialer, to: acceptor, sizes)
    }

    func connect(_ loops: LoopPair) async throws -> LinkEnds {
        switch self {
        case .memory:
            let loop = loops.dialer
            return await loop.run {
                let ends = MemoryLink.pair(loop: loop)
                return LinkEnds(dialer: ends.0, acceptor: ends.1)
            }
        case .unix(let kind):
            let address = try UnixAddress.scratch(kind)
            let listener = try await UnixListener.listen(address, loop: loops.acceptor)
            return try await Self.connect(listener) {
                try await SocketLink.dial(address, loop: loops.dialer)
            }
        case .l2cap(let dialer, let acceptor, let sizes):
            let listener = try L2CAPListener.listen(
                on: acceptor, receiveMTU: sizes.mtu, maximumSDU: sizes.sdu, loop: loops.acceptor)
            let address = listener.localAddress
            let ends = try await Self.connect(listener) {
                try await SocketLink.dial(
                    address, from: dialer, deadline: loops.dialer.now.advanced(by: .seconds(10)),
                    receiveMTU: sizes.mtu, maximumSDU: sizes.sdu, loop: loops.dialer)
            }
            // The largest payload of an ACL packet, without the four bytes of L2CAP's header.
            let mps = max(1, Int(try dialer.packets().maximumPayload) - 4)
            let metered = PacketScenario.Ends(
                dialer: MeteredLink(ends.dialer, mps: mps),
                acceptor: MeteredLink(ends.acceptor, mps: mps))
            return LinkEnds(
                dialer: metered.dialer, acceptor: metered.acceptor, metered: metered)
        }
    }

    private static func connect(
        _ listener: any LinkListener, _ dial: () async throws -> SocketLink
    ) async throws -> LinkEnds {
        async let accepted = listener.accept()
        do {
            let dialed = try await dial()
            let ends = LinkEnds(dialer: dialed, acceptor: try await accepted)
            await listener.close()
            return ends
        } catch {
            await listener.close()
            throw error
        }
    }
}

extension UnixAddress {
    /// An address in /tmp with a random name.
    static func scratch(_ kind: Kind) throws -> UnixAddress {
        let path = "/tmp/blesec-bench-\(UInt64.random(in: 0...UInt64.max)).sock"
        return try UnixAddress(path: path, kind: kind)
    }
}

/// The two ends of an open link.
struct LinkEnds: Sendable {
    let dialer: any Link
    let acceptor: any Link
    /// The same two ends, if they are metered links; nil otherwise.
    var metered: PacketScenario.Ends?
}

/// The loops of both ends of the measured links.
struct LoopPair: Sendable {
    let dialer = EventLoop(name: "bench-dialer")
    let acceptor = EventLoop(name: "bench-acceptor")

    func shutdown() async {
        await dialer.shutdown()
        await acceptor.shutdown()
    }
}
