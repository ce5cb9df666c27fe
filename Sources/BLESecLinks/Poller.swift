internal import CBLESecLinux
import Glibc

/// One epoll instance and the eventfd that interrupts its wait.
///
/// The event loop's C calls are here, in ``LoopThread`` and in ``Socket``. ``wake()`` and
/// ``close()`` are called under the loop's mutex; everything else is used on the loop's thread.
@safe final class Poller {
    /// The events to wait for, or those that have occurred.
    ///
    /// Not an `OptionSet`, whose literals allocate in a debug build.
    struct Events: Equatable {
        let rawValue: UInt32

        init(rawValue: UInt32) { self.rawValue = rawValue }

        init(read: Bool, write: Bool) {
            rawValue = (read ? EPOLLIN.rawValue : 0) | (write ? EPOLLOUT.rawValue : 0)
        }

        static var none: Events { Events(rawValue: 0) }

        var reads: Bool { rawValue & EPOLLIN.rawValue != 0 }
        var writes: Bool { rawValue & EPOLLOUT.rawValue != 0 }
        /// Whether the peer or the lower layer is gone. The kernel reports this even for a
        /// descriptor that is watched for ``none``.
        var ended: Bool { rawValue & (EPOLLERR.rawValue | EPOLLHUP.rawValue) != 0 }
    }

    /// The most events that one call of ``wait(nanoseconds:_:)`` reports.
    private static let capacity = 128
    /// The token of the eventfd; ``SourceTable`` never gives it to a source.
    private static let wakeToken = UInt64.max

    private var epoll: Int32
    private var wakeDescriptor: Int32
    private let events: UnsafeMutablePointer<epoll_event>

    /// Returns nil, with the reason in `errno`, when the process has no descriptors left.
    init?() {
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        wakeDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        unsafe events = .allocate(capacity: Self.capacity)
        guard epoll >= 0, wakeDescriptor >= 0,
            blesec_epoll_control(
                epoll, EPOLL_CTL_ADD, wakeDescriptor, EPOLLIN.rawValue, Self.wakeToken) == 0
        else { return nil }
    }

    deinit {
        close()
        unsafe events.deallocate()
    }

    /// Frees both descriptors; afterwards no descriptor is reported as ready.
    func close() {
        if wakeDescriptor >= 0 { Glibc.close(wakeDescriptor) }
        if epoll >= 0 { Glibc.close(epoll) }
        (epoll, wakeDescriptor) = (-1, -1)
    }

    /// Interrupts the current wait or the next one. Called from any thread.
    func wake() { _ = eventfd_write(wakeDescriptor, 1) }

    /// Starts to watch a descriptor; returns 0 or an `errno` value.
    func add(_ descriptor: Int32, for interest: Events, token: UInt64) -> Int32 {
        control(EPOLL_CTL_ADD, descriptor, interest, token)
    }

    /// Changes the events to watch for; returns 0 or an `errno` value.
    func change(_ descriptor: Int32, to interest: Events, token: UInt64) -> Int32 {
        control(EPOLL_CTL_MOD, descriptor, interest, token)
    }

    func remove(_ descriptor: Int32) { _ = control(EPOLL_CTL_DEL, descriptor, .none, 0) }

    /// Waits, then calls `body` with the token and the events of each descriptor that is ready.
    ///
    /// - Parameter nanoseconds: the longest wait; 0 does not wait, a negative value has no limit.
    /// - Returns: the number of ready descriptors.
    func wait(nanoseconds: Int64, _ body: (UInt64, Events) -> Void) -> Int {
        let count = Int(unsafe blesec_epoll_wait(epoll, events, Int32(Self.capacity), nanoseconds))
        // After EINTR, `wait` returns early, as it does after a wake-up.
        guard count > 0 else { return 0 }
        var ready = 0
        for index in 0..<count {
            let token = unsafe blesec_epoll_token(events + index)
            if token == Self.wakeToken {
                var ignored: UInt64 = 0
                unsafe eventfd_read(wakeDescriptor, &ignored)
                continue
            }
            ready += 1
            unsafe body(token, Events(rawValue: blesec_epoll_events(events + index)))
        }
        return ready
    }

    private func control(
        _ operation: Int32, _ descriptor: Int32, _ interest: Events, _ token: UInt64
    ) -> Int32 {
        let result = blesec_epoll_control(epoll, operation, descriptor, interest.rawValue, token)
        return result == 0 ? 0 : blesec_errno()
    }
}
