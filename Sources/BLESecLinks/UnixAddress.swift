import Glibc

/// The path of a Unix socket.
package struct UnixAddress: Sendable, Hashable, CustomStringConvertible {
    /// The kind of socket at the path.
    package typealias Kind = Socket.Kind

    /// The most bytes in a path: the size of `sun_path` less its final zero.
    package static let maximumPathLength = 107

    /// The largest number of bytes that one send takes.
    ///
    /// Well below the default send buffer (212,992 bytes), so no packet is refused for its size.
    package static let maximumSDU = 65_536

    package let path: String
    package let kind: Kind

    /// Checks the path.
    ///
    /// - Throws: ``LinkError/Code/invalidAddress`` when the path is empty, longer than
    ///   ``maximumPathLength`` bytes of UTF-8, or contains a zero byte.
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

    /// The format of the command-line tools: `unix:/path` or `unix-seqpacket:/path`.
    package var description: String { (kind == .stream ? "unix:" : "unix-seqpacket:") + path }

    /// The address with an absolute path; nil if that path is too long or not known.
    package var absolute: UnixAddress? {
        // Compared as bytes: a slash before a combining character is no `Character` of its own.
        guard path.utf8.first != UInt8(ascii: "/") else { return self }
        guard let folder = unsafe getcwd(nil, 0) else { return nil }
        defer { unsafe free(folder) }
        guard let text = unsafe String(validatingCString: folder) else { return nil }
        let name = path.utf8.starts(with: "./".utf8) ? path.utf8.dropFirst(2) : path.utf8[...]
        let whole = text + (text == "/" ? "" : "/") + String(Substring(name))
        return try? UnixAddress(path: whole, kind: kind)
    }

    var socketAddress: SocketAddress {
        SocketAddress(SocketAddress.family(AF_UNIX) + path.utf8 + [0])
    }

    /// The path of the folder that contains the socket's file.
    var folder: String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}
