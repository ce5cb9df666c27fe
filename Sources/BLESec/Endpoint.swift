public import ChannelCore
public import Links

/// Where a peer listens, as tools write it and print it.
///
/// `unix:/path`, `unix-seqpacket:/path`, `l2cap:AA:BB:CC:DD:EE:FF/0x80`, and for listening also
/// `l2cap:any` or `l2cap:any/0x85`.
public struct Endpoint: Sendable, Hashable {
    enum Kind: Sendable, Hashable {
        case unix(UnixAddress)
    }

    let kind: Kind

    /// Reads an endpoint; throws `configuration` with what is wrong.
    public init(_ text: String) throws(ChannelError) {
        do throws(LinkError) {
            if let path = text.afterPrefix("unix:") {
                kind = .unix(try UnixAddress(path: path))
            } else if let path = text.afterPrefix("unix-seqpacket:") {
                kind = .unix(try UnixAddress(path: path, kind: .seqpacket))
            } else {
                throw LinkError(
                    .invalidAddress,
                    "\(text) is no endpoint: it begins with l2cap:, unix: or unix-seqpacket:")
            }
        } catch {
            throw ChannelError(link: error)
        }
    }

    /// The endpoint of a Unix socket.
    public init(_ address: UnixAddress) { kind = .unix(address) }

    func dial(deadline: MonotonicTime, loop: EventLoop) async throws(LinkError) -> any Link {
        switch kind {
        case .unix(let address):
            try await UnixLink.dial(address, deadline: deadline, loop: loop)
        }
    }

    func listen(loop: EventLoop) async throws(LinkError) -> (any LinkListener, Endpoint) {
        switch kind {
        case .unix(let address):
            let listener = try await UnixListener.listen(address, loop: loop)
            return (listener, Endpoint(listener.localAddress))
        }
    }
}

extension Endpoint: CustomStringConvertible {
    public var description: String {
        switch kind {
        case .unix(let address): address.description
        }
    }
}

extension String {
    fileprivate func afterPrefix(_ prefix: String) -> String? {
        hasPrefix(prefix) ? String(dropFirst(prefix.count)) : nil
    }
}
