public import BLESecChannelCore
public import BLESecL2CAP
package import BLESecLinks

/// Where a peer listens, as tools write it and print it.
///
/// - `l2cap:AA:BB:CC:DD:EE:FF/0x80` to dial;
/// - `l2cap:any` to listen on a dynamic PSM, `l2cap:any/0x85` on that one;
/// - `unix:/path` and `unix-seqpacket:/path` for either.
public struct Endpoint: Sendable, Hashable {
    enum Kind: Sendable, Hashable {
        case unix(UnixAddress)
        case device(L2CAPAddress)
        case anyDevice(PSM?)
        case gatt
    }

    private(set) var kind: Kind
    /// The adapter to dial from or listen on, by name (`hci1`) or address; `nil` leaves it to the
    /// kernel. Means nothing for Unix sockets.
    public var adapter: String?

    /// Which kind of address the device to dial has; public unless set.
    public var addressType: AddressType {
        get {
            guard case .device(let address) = kind else { return .public }
            return address.type
        }
        set {
            guard case .device(var address) = kind else { return }
            address.type = newValue
            kind = .device(address)
        }
    }

    /// Reads an endpoint.
    ///
    /// - Throws: `configuration` with what is wrong.
    public init(parsing text: String) throws(ChannelError) {
        do throws(LinkError) {
            kind = try Self.parse(text)
        } catch {
            throw ChannelError(link: error)
        }
    }

    /// Reads what ``init(parsing:)`` reads; nil for anything else.
    public init?(_ text: String) {
        guard let value = try? Self(parsing: text) else { return nil }
        self = value
    }

    /// The same endpoint for a process with another working directory; nil where there is none.
    package var absolute: Endpoint? {
        guard case .unix(let address) = kind else { return self }
        return address.absolute.map { Endpoint($0) }
    }

    /// The endpoint of a Unix socket.
    package init(_ address: UnixAddress) { kind = .unix(address) }

    /// The endpoint of a device's PSM.
    public init(_ address: L2CAPAddress) { kind = .device(address) }

    /// Where peers come over GATT, by the service that is advertised; nothing to be written or dialed.
    static let gatt = Endpoint(kind: .gatt)

    private init(kind: Kind) { self.kind = kind }

    private static func parse(_ text: String) throws(LinkError) -> Kind {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2 else { throw unknown(text) }
        switch parts[0] {
        case "unix": return .unix(try UnixAddress(path: String(parts[1])))
        case "unix-seqpacket":
            return .unix(try UnixAddress(path: String(parts[1]), kind: .seqpacket))
        case "l2cap":
            guard parts[1] != "any" else { return .anyDevice(nil) }
            guard parts[1].hasPrefix("any/") else {
                return .device(try L2CAPAddress(parsing: parts[1]))
            }
            let psm = parts[1].dropFirst(4)
            return .anyDevice(psm == "0" ? nil : try PSM(parsing: psm))
        default: throw unknown(text)
        }
    }

    private static func unknown(_ text: String) -> LinkError {
        LinkError(
            .invalidAddress,
            "\"\(text)\" is no endpoint: write l2cap:AA:BB:CC:DD:EE:FF/0x80, l2cap:any, "
                + "unix:/path or unix-seqpacket:/path")
    }
}

extension Endpoint: LosslessStringConvertible {
    /// The form that ``init(parsing:)`` reads.
    public var description: String {
        switch kind {
        case .unix(let address): address.description
        case .device(let address): address.description
        case .anyDevice(nil): "l2cap:any"
        case .anyDevice(let psm?): "l2cap:any/\(psm)"
        case .gatt: "gatt"
        }
    }
}

extension Endpoint: Codable {
    /// Reads the text form.
    public init(from decoder: any Decoder) throws {
        self = try decoder.readText { text throws(ChannelError) in try Endpoint(parsing: text) }
    }

    /// Writes the text form.
    public func encode(to encoder: any Encoder) throws { try encoder.writeText(self) }
}

extension Endpoint {
    /// Opens a link, without any channel over it.
    package func dial(
        deadline: MonotonicTime, loop: EventLoop
    ) async throws(LinkError) -> any Link {
        switch kind {
        case .unix(let address):
            return try await UnixLink.dial(address, deadline: deadline, loop: loop)
        case .device(let address):
            return try await L2CAPLink.dial(
                address, from: try namedAdapter(), deadline: deadline, loop: loop)
        case .anyDevice:
            throw LinkError(
                .invalidAddress, "\(self) can be listened on; to dial, name the device and its PSM")
        case .gatt: throw Self.noPlace
        }
    }

    /// Listens for links, without any channel over them; returns also where they can be dialed.
    package func listen(loop: EventLoop) async throws(LinkError) -> (any LinkListener, Endpoint) {
        switch kind {
        case .unix(let address):
            let listener = try await UnixListener.listen(address, loop: loop)
            return (listener, Endpoint(listener.localAddress))
        case .anyDevice(let psm):
            return try await listen(on: try namedAdapter(), psm: psm, loop: loop)
        case .device(let address):
            let adapter = try Adapter.named(address.device.description)
            return try await listen(on: adapter, psm: address.psm, loop: loop)
        case .gatt: throw Self.noPlace
        }
    }

    private static let noPlace = LinkError(
        .invalidAddress, "a stream over GATT is found by its service")

    private func listen(
        on adapter: Adapter?, psm: PSM?, loop: EventLoop
    ) async throws(LinkError) -> (any LinkListener, Endpoint) {
        let listener = try await L2CAPListener.listen(psm: psm, on: adapter, loop: loop)
        return (listener, Endpoint(listener.localAddress))
    }

    private func namedAdapter() throws(LinkError) -> Adapter? {
        guard let adapter else { return nil }
        return try Adapter.named(adapter)
    }
}
