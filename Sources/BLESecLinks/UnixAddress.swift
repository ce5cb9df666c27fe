import Glibc

/// The path of a Unix socket.
package struct UnixAddress: Sendable, Hashable, CustomStringConvertible {
    /// How bytes travel there.
    package enum Kind: Sendable, Hashable {
        /// A byte stream (`SOCK_STREAM`).
        case stream
        /// Packets (`SOCK_SEQPACKET`): each send arrives as one.
        case seqpacket
    }

    /// Bytes that a path may have: `sun_path` less its zero.
    package static let maximumPathLength = 107

    /// Where the socket's file is.
    package let path: String
    /// How bytes travel there.
    package let kind: Kind

    /// Checks the path.
    ///
    /// - Throws: ``LinkError/Code/invalidAddress`` when it is empty, longer than
    ///   ``maximumPathLength`` bytes of UTF-8, or has a zero in it.
    package init(path: String, kind: Kind = .stream) throws(LinkError) {
        guard !path.isEmpty else {
            throw LinkError(.invalidAddress, "the path of a Unix socket is missing")
        }
        guard !path.utf8.contains(0) else {
            throw LinkError(.invalidAddress, "the path of a Unix socket has a zero byte in it")
        }
        guard path.utf8.count <= Self.maximumPathLength else {
            throw LinkError(
                .invalidAddress,
                "the path of a Unix socket may have \(Self.maximumPathLength) bytes, not "
                    + "\(path.utf8.count): use a shorter one or a relative one")
        }
        self.path = path
        self.kind = kind
    }

    /// As the tools write it: `unix:/path` or `unix-seqpacket:/path`.
    package var description: String {
        switch kind {
        case .stream: "unix:\(path)"
        case .seqpacket: "unix-seqpacket:\(path)"
        }
    }

    /// The same place, whatever the working directory is; nil where that makes the path too long.
    package var absolute: UnixAddress? {
        guard !path.hasPrefix("/") else { return self }
        guard let folder = unsafe getcwd(nil, 0) else { return nil }
        defer { unsafe free(folder) }
        guard let text = unsafe String(validatingCString: folder) else { return nil }
        let name = path.hasPrefix("./") ? path.dropFirst(2) : path[...]
        return try? UnixAddress(path: text + (text == "/" ? "" : "/") + name, kind: kind)
    }

    var socketAddress: SocketAddress {
        SocketAddress(SocketAddress.family(AF_UNIX) + path.utf8 + [0])
    }

    var socketKind: Socket.Kind {
        switch kind {
        case .stream: .stream
        case .seqpacket: .seqpacket
        }
    }

    /// The folder that the file is in.
    var folder: String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}
