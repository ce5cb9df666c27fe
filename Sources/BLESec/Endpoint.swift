public import BLESecChannelCore
public import BLESecL2CAP
package import BLESecLinks

/// An address to dial or to listen on. Command-line tools read and print it as one of these texts:
///
/// - `l2cap:AA:BB:CC:DD:EE:FF/0x80` to dial a device, or to listen on the adapter with this
///   address;
/// - `l2cap:any` to listen on a dynamic PSM, `l2cap:any/0x85` to listen on PSM 0x85;
/// - `unix:/path` and `unix-seqpacket:/path` to dial or to listen.
public struct Endpoint: Sendable, Hashable {
    enum Kind: Sendable, Hashable {
        case unix(UnixAddress)
        case device(L2CAPAddress)
        /// A PSM to listen on; `nil` for a dynamic PSM.
        case anyDevice(PSM?)
        case gatt
    }

    private(set) var kind: Kind
    /// The adapter to dial from or to listen on, by name (`hci1`) or address. With `nil`, the
    /// kernel chooses the adapter to dial from, and a listener listens on all adapters. Ignored for
    /// Unix sockets, and by a listener whose endpoint contains the address of an adapter.
    public var adapter: String?

    /// The type of the device's address; public by default. If the endpoint names no device, the
    /// type is always public, and setting it has no effect.
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

    /// Parses an endpoint.
    ///
    /// - Throws: `configuration` with a reason.
    public init(parsing text: String) throws(ChannelError) {
        do throws(LinkError) {
            kind = try Self.parse(text)
        } catch {
            throw ChannelError(link: error)
        }
    }

    /// Parses an endpoint as ``init(parsing:)`` does; `nil` if the text is not an endpoint.
    public init?(_ text: String) {
        guard let value = try? Self(parsing: text) else { return nil }
        self = value
    }

    /// The same endpoint; the path of a Unix socket is made absolute. `nil` if the absolute path is
    /// too long, or if the working directory is not known.
    package var absolute: Endpoint? {
        guard case .unix(let address) = kind else { return self }
        return address.absolute.map { Endpoint($0) }
    }

    /// The endpoint of a Unix socket.
    package init(_ address: UnixAddress) { kind = .unix(address) }
    /// The endpoint of a PSM on a device.
    public init(_ address: L2CAPAddress) { kind = .device(address) }

    /// The endpoint of links that arrive over GATT. This endpoint cannot be parsed or dialed: a dialer
    /// finds a listener over GATT by the service that the listener advertises.
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
        // An invitation contains a secret.
        let subject = text.hasPrefix("blesec:pair?") ? "an invitation to pair" : "\"\(text)\""
        return LinkError(
            .invalidAddress,
            "\(subject) is no endpoint: write l2cap:AA:BB:CC:DD:EE:FF/0x80, l2cap:any, "
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
    /// Opens a link to the endpoint, without a channel over it.
    package func dial(
        deadline: MonotonicTime, loop: EventLoop
    ) async throws(LinkError) -> any Link {
        switch kind {
        case .unix(let address):
            return try await SocketLink.dial(address, deadline: deadline, loop: loop)
        case .device(let address):
            return try await SocketLink.dial(
                address, from: try namedAdapter(), deadline: deadline, loop: loop)
        case .anyDevice:
            throw LinkError(
                .invalidAddress, "\(self) can be listened on; to dial, name the device and its PSM")
        case .gatt: throw Self.gattAddressError
        }
    }

    /// Listens for links, without channels; returns the listener and the endpoint to dial.
    package func listen(loop: EventLoop) async throws(LinkError) -> (any LinkListener, Endpoint) {
        switch kind {
        case .unix(let address):
            let listener = try await UnixListener.listen(address, loop: loop)
            return (listener, Endpoint(listener.localAddress))
        case .anyDevice(let psm):
            return try listen(on: try namedAdapter(), psm: psm, loop: loop)
        case .device(let address):
            let adapter = try Adapter.named(address.device.description)
            return try listen(on: adapter, psm: address.psm, loop: loop)
        case .gatt: throw Self.gattAddressError
        }
    }

    private static let gattAddressError = LinkError(
        .invalidAddress, "a stream over GATT has no address: the dialer finds it by its service")

    private func listen(
        on adapter: Adapter?, psm: PSM?, loop: EventLoop
    ) throws(LinkError) -> (any LinkListener, Endpoint) {
        let listener = try L2CAPListener.listen(psm: psm, on: adapter, loop: loop)
        return (listener, Endpoint(listener.localAddress))
    }

    private func namedAdapter() throws(LinkError) -> Adapter? {
        try adapter.map(Adapter.named)
    }
}
