/// An ordered way to move bytes to one peer and back, unauthenticated and in clear.
///
/// Everything is done on the thread of its ``loop``; a call from another thread is the caller's
/// mistake and traps. What one end sends arrives at the other in order, though not in the same
/// pieces: a link may join and split what was sent. Nothing is buffered here beyond what the kernel
/// (or, for a ``MemoryLink``, its capacity) holds: who does not read stops the peer.
///
/// The way to use it: try the call first, and wait only when it says that it would block. Readiness
/// is level-triggered: as long as ``wantsRead`` is on and there is something to read, the handler is
/// called again.
public protocol Link: AnyObject, Sendable {
    /// The loop whose thread everything happens on.
    var loop: EventLoop { get }

    /// The largest number of bytes that one ``send(_:)`` takes. Constant.
    ///
    /// L2CAP: min(the peer's MTU, 8 KiB, what the socket's send buffer can hold).
    var maximumSDU: Int { get }

    /// Hands bytes to the link, as one SDU where it has SDUs.
    ///
    /// - Parameter bytes: at least one byte, at most ``maximumSDU``.
    /// - Returns: how many were taken: all of them, or 0 when it would block now. A link that is a
    ///   byte stream may take a part.
    /// - Throws: ``LinkError/Code/tooLarge`` above ``maximumSDU`` (nothing is sent, the link lives
    ///   on), ``LinkError/Code/closed`` after ``close()`` or ``halfClose()``, or what ended the link.
    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int

    /// Appends what has arrived to `buffer`, up to its free capacity.
    ///
    /// Any capacity from one byte up is enough on every link: what does not fit stays for the next
    /// call, and an SDU is never cut off.
    ///
    /// - Returns: ``LinkReceive/bytes`` when at least one byte was appended.
    /// - Throws: ``LinkError/Code/closed`` after ``close()``, or what ended the link.
    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive

    /// Names who is told of readiness, or nobody. Held weakly.
    func setHandler(_ handler: (any LinkHandler)?)

    /// Whether the handler is told when there is something to read. Off at first.
    ///
    /// Off is how a reader that is full pushes back on the peer. Goes off by itself once
    /// ``receive(into:)`` has returned ``LinkReceive/end`` or thrown.
    var wantsRead: Bool { get set }

    /// Whether the handler is told when a send may succeed. Off at first.
    ///
    /// Switch it on after a send that would block, and off when nothing waits to be sent.
    var wantsWrite: Bool { get set }

    /// Whether nothing that was sent still waits in this end's own queue.
    ///
    /// Closing before may lose what waits (on L2CAP it does). A link that cannot know says true.
    /// Nothing tells of the change: look again after a while.
    var isDrained: Bool { get }

    /// Tells the peer that nothing more will be sent, and goes on receiving.
    ///
    /// - Returns: false where the link cannot do that (L2CAP: its shutdown ends both directions);
    ///   nothing has changed then.
    func halfClose() -> Bool

    /// Ends the link at once and frees its descriptor. The handler is not called again.
    ///
    /// May be called again; then it does nothing. Dropping the last reference closes as well.
    func close()

    /// Who is at the other end, for logs. Not authenticated.
    var peerDescription: String { get }

    /// The peer's address, by which peers are limited before they have proven who they are; nil
    /// where the link has none (memory and Unix links). Not authenticated.
    var peerAddress: LinkAddress? { get }
}

/// What ``Link/receive(into:)`` did.
public enum LinkReceive: Sendable, Hashable {
    /// At least one byte was appended.
    case bytes
    /// Nothing is there now.
    case wouldBlock
    /// Nothing more will ever arrive.
    case end
}

/// Who is told that a link is ready.
///
/// Every call comes on the thread of the link's loop, from the loop itself: never from inside a call
/// to the link. The handler may call the link, and may close it.
public protocol LinkHandler: AnyObject {
    /// There is something to read, or the end.
    func linkIsReadable()
    /// A send may succeed now.
    func linkIsWritable()
    /// The peer or the link below is gone; told at most once, whether or not reading is wanted. What
    /// has arrived can still be read.
    func linkDidHangUp()
}

/// The address of a peer, compared to tell peers apart before they are authenticated.
public struct LinkAddress: Sendable, Hashable, CustomStringConvertible {
    /// Its text, in the form that its kind of link prints.
    public let description: String

    /// Takes the canonical text of an address.
    public init(_ description: String) {
        self.description = description
    }
}
