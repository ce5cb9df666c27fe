import Glibc

/// The error number of a failed system call.
package struct SystemError: Error, Hashable {
    /// The value of `errno`.
    package let number: Int32

    package init(_ number: Int32) { self.number = number }
}

extension LinkError {
    /// Translates a system call's error for users of links, by the usual meaning of its number.
    ///
    /// - Parameter action: what failed, as the end of a sentence that begins with "cannot".
    package init(_ error: SystemError, cannot action: String) {
        let number = error.number
        let (code, reason): (Code, String) =
            switch number {
            case ECONNREFUSED: (.refused, "nobody listens there")
            case EHOSTUNREACH, ENETUNREACH, EHOSTDOWN: (.unreachable, "it cannot be reached")
            case ETIMEDOUT: (.timedOut, "no answer came in time")
            case ECONNRESET, EPIPE, ENOTCONN: (.reset, "the peer has closed it")
            case ECONNABORTED, ENETDOWN: (.reset, "the adapter went away")
            case EMSGSIZE: (.tooLarge, "more bytes in one send than the peer takes")
            case EADDRINUSE: (.addressInUse, "someone else listens there")
            case EACCES, EPERM: (.permission, "not allowed")
            case ENOENT: (.notFound, "no such path")
            case ENOTDIR: (.notFound, "a part of the path is not a folder")
            case ENODEV: (.noSuchAdapter, "no such adapter")
            case EMFILE, ENFILE: (.unavailable, "no descriptors left: raise `ulimit -n`")
            case ENOMEM, ENOBUFS: (.unavailable, "the kernel has no memory for it")
            case EAFNOSUPPORT, EPROTONOSUPPORT: (.unavailable, "the kernel does not offer it")
            default: (.system, Socket.errorText(of: number))
            }
        self.init(code, "cannot \(action): \(reason)", systemError: number)
    }
}
