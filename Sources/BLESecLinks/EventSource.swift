/// Called when a watched descriptor is ready, on the loop's thread.
package protocol EventSourceHandler: AnyObject {
    /// Reports what the descriptor is ready for. `hungUp` is true in one call at most.
    func sourceIsReady(readable: Bool, writable: Bool, hungUp: Bool)
}

/// A descriptor that a loop watches and owns.
///
/// ``want(read:write:)`` makes a system call only if the kernel does not watch for a wanted event
/// yet. An event that is not wanted any more costs a system call only when it occurs.
/// All members except the initializer are used on the loop's thread.
package final class EventSource: @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    package let loop: EventLoop
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var descriptor: Int32
    private weak var handler: (any EventSourceHandler)?
    private var wanted = Poller.Events.none
    /// The events that the kernel watches for; nil while the kernel does not watch the descriptor.
    private var watched: Poller.Events?
    private var token: UInt64?
    private var hasHungUp = false
    /// The `errno` value if the kernel has refused to watch the descriptor; otherwise 0. After a
    /// refusal, the handler is called.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package private(set) var failure: Int32 = 0

    /// Takes ownership of an open, nonblocking descriptor; ``close()`` closes it.
    package init(owning descriptor: Int32, loop: EventLoop) {
        self.descriptor = descriptor
        self.loop = loop
    }

    /// The descriptor, or -1 after ``close()``.
    package var fileDescriptor: Int32 { descriptor }
    /// Whether the kernel has reported that the peer or the lower layer is gone.
    package var hungUp: Bool { hasHungUp }

    /// Sets the handler, which is held weakly.
    package func setHandler(_ handler: (any EventSourceHandler)?) { self.handler = handler }

    /// Sets the events that are reported to the handler.
    package func want(read: Bool, write: Bool) {
        loop.assertCurrent()
        wanted = Poller.Events(read: read, write: write)
        let watched = watched ?? .none
        guard descriptor >= 0, failure == 0,
            (read && !watched.reads) || (write && !watched.writes)
        else { return }
        watch(for: Poller.Events(read: read || watched.reads, write: write || watched.writes))
    }

    /// Lets ``want(read:write:)`` try again after the kernel has refused to watch the descriptor.
    package func forgetFailure() { failure = 0 }

    /// Stops watching and closes the descriptor. A second call does nothing.
    package func close() {
        loop.assertCurrent()
        handler = nil
        guard descriptor >= 0 else { return }
        if watched != nil { loop.poller.remove(descriptor) }
        watched = nil
        if let token { loop.sources.remove(token) }
        token = nil
        Socket.close(descriptor)
        descriptor = -1
    }

    func deliver(_ events: Poller.Events) {
        let reportsHangUp = events.ended && !hasHungUp
        if events.ended { hasHungUp = true }
        // After a hang-up, the descriptor counts as ready, so that the handler learns of the end.
        let readable = wanted.reads && (events.ended || events.reads)
        let writable = wanted.writes && (events.ended || events.writes)
        let hasUnwantedEvent = (events.reads && !wanted.reads) || (events.writes && !wanted.writes)
        if hasUnwantedEvent || (events.ended && wanted == .none) { unwatchUnwanted() }
        if readable || writable || reportsHangUp {
            handler?.sourceIsReady(readable: readable, writable: writable, hungUp: reportsHangUp)
        }
    }

    /// Calls the handler when the loop is shut down. The handler then has to check
    /// ``EventLoop/isShutDown``.
    func deliverShutdown() { handler?.sourceIsReady(readable: true, writable: true, hungUp: false) }

    /// Stops watching for unwanted events. The kernel reports a hang-up again and again, also for a
    /// descriptor without wanted events. So after a hang-up, such a descriptor is not watched at all.
    private func unwatchUnwanted() {
        if wanted == .none && hasHungUp {
            if watched != nil { loop.poller.remove(descriptor) }
            watched = nil
        } else if watched != wanted {
            watch(for: wanted)
        }
    }

    private func watch(for interest: Poller.Events) {
        let token = token ?? loop.sources.insert(self)
        self.token = token
        let result =
            watched == nil
            ? loop.poller.add(descriptor, for: interest, token: token)
            : loop.poller.change(descriptor, to: interest, token: token)
        if result == 0 {
            watched = interest
        } else {
            failure = result
            loop.execute { [self] in
                handler?.sourceIsReady(readable: true, writable: true, hungUp: false)
            }
        }
    }
}

/// The sources of a loop, each with a unique token, which the kernel reports with each event.
struct SourceTable {
    private struct Slot {
        /// How many sources were removed from this slot: the upper half of the present source's token.
        var generation: UInt32
        var source: EventSource?
    }

    private var slots: [Slot] = []
    private var free: [UInt32] = []

    var count: Int { slots.count - free.count }

    mutating func insert(_ source: EventSource) -> UInt64 {
        if let index = free.popLast() {
            slots[Int(index)].source = source
            return UInt64(slots[Int(index)].generation) << 32 | UInt64(index)
        }
        slots.append(Slot(generation: 0, source: source))
        return UInt64(slots.count - 1)
    }

    mutating func remove(_ token: UInt64) {
        let index = Int(token & 0xFFFF_FFFF)
        slots[index].source = nil
        slots[index].generation &+= 1
        free.append(UInt32(index))
    }

    /// The source with `token`; nil once the source was removed.
    func source(_ token: UInt64) -> EventSource? {
        let slot = slots[Int(token & 0xFFFF_FFFF)]
        return slot.generation == UInt32(token >> 32) ? slot.source : nil
    }

    var all: [EventSource] { slots.compactMap(\.source) }
}
