/// An ordered, unauthenticated and unencrypted connection to one peer.
///
/// All calls must be made on the thread of the link's ``loop``; a call from another thread traps.
/// Bytes arrive in the order in which they were sent, but a link may join and split the pieces that
/// were sent. A link holds a bounded number of bytes, in the kernel or in memory: if the receiver
/// does not read, the sender has to wait.
///
/// Call ``send(_:)`` or ``receive(into:)`` first, and wait only when the call would block.
/// Readiness is level-triggered: as long as ``wantsRead`` is true and there is something to read,
/// the handler is called again.
public protocol Link: AnyObject, Sendable {
    /// The loop on whose thread the link is used.
    var loop: EventLoop { get }

    /// The largest number of bytes that one ``send(_:)`` takes. Constant.
    ///
    /// L2CAP: the smaller of the peer's MTU and the limit that was set when the link was made,
    /// which is 4,197 bytes by default.
    var maximumSDU: Int { get }

    /// Sends bytes, as one SDU if the link has SDUs.
    ///
    /// - Parameter bytes: at least one byte, at most ``maximumSDU``.
    /// - Returns: the number of bytes taken: all, a part, or 0 when the send would block.
    /// - Throws: one of these errors:
    ///   - ``LinkError/Code/tooLarge`` above ``maximumSDU``. Nothing is sent, and the link stays open.
    ///   - ``LinkError/Code/unavailable`` with the system error `ENOBUFS` or `ENOMEM` if the kernel
    ///     has no memory for the bytes now. Nothing is sent, and a later call may succeed.
    ///   - ``LinkError/Code/closed`` after ``close()`` or ``halfClose()``.
    ///   - The error that ended the link.
    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int

    /// Appends received bytes to `buffer`, up to its free capacity.
    ///
    /// A free capacity of one byte is enough on every link: what does not fit stays for the next
    /// call, and no SDU is truncated.
    ///
    /// - Returns: ``LinkReceive/bytes`` when at least one byte was appended.
    /// - Throws: ``LinkError/Code/closed`` after ``close()``, or the error that ended the link.
    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive

    /// Sets or removes the handler, which is held weakly.
    func setHandler(_ handler: (any LinkHandler)?)

    /// Whether the handler is called when there is something to read. Initially false.
    ///
    /// A reader without room sets it to false, so that the peer has to wait. The link sets it to
    /// false once ``receive(into:)`` has returned ``LinkReceive/end``, or has thrown the error that
    /// ended the link.
    var wantsRead: Bool { get set }

    /// Whether the handler is called when a send may succeed. Initially false.
    ///
    /// Set it to true after a send that would block, and to false when nothing waits to be sent.
    var wantsWrite: Bool { get set }

    /// Whether this end's own send queue is empty.
    ///
    /// Closing the link while the queue is not empty may lose the queued bytes (on L2CAP it does).
    /// A link that cannot know returns true. When the value changes, no handler is called: check
    /// again later.
    var isDrained: Bool { get }

    /// How much waits in this end's own send queue; 0 if ``isDrained`` is true.
    ///
    /// Each link has its own unit (on L2CAP, the kernel adds its overhead), so compare only values
    /// of one link. A smaller value means that the link has passed something on, and restarts the
    /// close deadline of a direct channel. The default implementation returns 1 until the queue is
    /// empty, and so does not restart this deadline.
    var queuedBytes: Int { get }

    /// Whether the link keeps its own send queue short. Initially false.
    ///
    /// While it is true, a send takes nothing if about 16 KiB that were sent before have not
    /// reached the peer's side yet (on a Unix socket, 15 to 33 KiB). So urgent bytes do not wait
    /// behind many others. An L2CAP link still has room for at least two SDUs of the largest size.
    /// A Unix packet socket then takes at most 8 KiB in one send. While the property is false, the
    /// queue is as long as the link allows, which takes less processor time.
    ///
    /// The property may be set at any time, and setting it to the value that it has costs nothing.
    /// Bytes that the link has taken before a change stay queued. A link without a queue of its own
    /// ignores the property, and returns false; so does the default implementation.
    var keepsQueueShort: Bool { get set }

    /// Ends the sending direction; receiving continues.
    ///
    /// - Returns: false, without a change, where the link does not support ending one direction (an
    ///   L2CAP shutdown ends both).
    func halfClose() -> Bool

    /// Ends the link at once and frees its descriptor. The handler is not called again.
    ///
    /// A second call does nothing. Releasing the last reference closes the link as well.
    func close()

    /// A description of the peer for logs. Not authenticated.
    var peerDescription: String { get }
    /// The peer's address. A listener limits the number of handshakes for each address. Nil if the
    /// link has no addresses (memory and Unix links). Not authenticated.
    var peerAddress: LinkAddress? { get }
}

extension Link {
    /// 0 if ``isDrained`` is true, otherwise 1.
    public var queuedBytes: Int { isDrained ? 0 : 1 }

    /// False: a link without a send queue of its own ignores a change.
    public var keepsQueueShort: Bool {
        get { false }
        set {}
    }
}

/// A link that knows whether ``Link/halfClose()`` would succeed, without calling it.
package protocol HalfClosingLink: Link {
    /// Whether ``Link/halfClose()`` would end the sending direction now.
    var canHalfClose: Bool { get }
}

/// The result of ``Link/receive(into:)``.
public enum LinkReceive: Sendable, Hashable {
    /// At least one byte was appended.
    case bytes
    /// There is nothing to read now.
    case wouldBlock
    /// Nothing more will arrive.
    case end
}

/// Receives the events of a link.
///
/// The loop makes every call, on its thread, and never during a call to the link. The handler may
/// call the link, and may close it.
public protocol LinkHandler: AnyObject {
    /// There is something to read, or the end was reached.
    func linkIsReadable()
    /// A send may succeed now.
    func linkIsWritable()
    /// The peer or the lower layer is gone. Called at most once, also while ``Link/wantsRead`` is
    /// false. Received bytes can still be read.
    func linkDidHangUp()
}

/// A peer's address, which distinguishes peers before they are authenticated.
public struct LinkAddress: Sendable, Hashable, CustomStringConvertible {
    /// The address, in the type that its kind of link uses.
    package let value: any Hashable & Sendable & CustomStringConvertible

    /// Makes an address from its canonical text.
    public init(_ description: String) { value = description }

    /// Makes an address from a value of the type that its kind of link uses.
    package init(_ value: some Hashable & Sendable & CustomStringConvertible) { self.value = value }

    /// The address as text, in the form that its kind of link prints.
    public var description: String { value.description }

    /// Whether both are the same address of the same type.
    public static func == (left: LinkAddress, right: LinkAddress) -> Bool {
        AnyHashable(left.value) == AnyHashable(right.value)
    }

    /// Hashes the address.
    public func hash(into hasher: inout Hasher) { value.hash(into: &hasher) }
}
