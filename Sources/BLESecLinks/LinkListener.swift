/// Accepts links from peers that dial.
package protocol LinkListener: AnyObject, Sendable {
    /// Waits for the next peer.
    ///
    /// Several tasks may wait; they get peers in the order in which they began to wait. While no
    /// task waits, peers stay in the kernel's queue; when the queue is full, the kernel refuses
    /// further peers or lets them wait.
    ///
    /// - Throws: ``LinkError/Code/closed`` once the listener is closed,
    ///   ``LinkError/Code/cancelled`` as soon as the task is cancelled. After any other error, for
    ///   example for lack of descriptors, the listener stays open: the caller may retry later.
    func accept() async throws(LinkError) -> any Link

    /// Waits for the next peer, as ``accept()`` does. When the peer has come, calls `choose`, on
    /// any thread, and makes the link on the loop that `choose` returns.
    ///
    /// If the chosen loop was shut down, the link is made on the listener's own loop. A listener
    /// whose links cannot change loops makes every link on its own loop.
    func accept(
        on choose: @escaping @Sendable () -> EventLoop
    ) async throws(LinkError) -> any Link

    /// Stops listening and frees the address before it returns. Accepted links stay open.
    ///
    /// May be called again. Releasing the last reference closes the listener too, a moment later.
    func close() async

    /// The endpoint that peers dial, in the format of the command-line tools.
    var localDescription: String { get }
}

extension LinkListener {
    package func accept(
        on choose: @escaping @Sendable () -> EventLoop
    ) async throws(LinkError) -> any Link {
        try await accept()
    }

    /// Passes each link to `take`, in order, until the listener is closed or the task is cancelled.
    ///
    /// - Parameters:
    ///   - loop: the listener's loop.
    ///   - linkLoop: chooses a link's loop when the peer has come; nil means the listener's loop.
    ///   - report: called when a peer could not be accepted; of several such failures in a row,
    ///     only for the first.
    package func acceptAll(
        on loop: EventLoop, linkLoop: (@Sendable () -> EventLoop)? = nil,
        reporting report: (LinkError) async -> Void = { _ in }, _ take: (any Link) async -> Void
    ) async {
        let choose = linkLoop ?? { loop }
        var isFailing = false
        while !Task.isCancelled {
            do throws(LinkError) {
                let link = try await accept(on: choose)
                isFailing = false
                await take(link)
            } catch {
                if error.code == .cancelled || error.code == .closed { return }
                if !isFailing { await report(error) }
                isFailing = true
                // Descriptors or memory ran out: wait before the next attempt.
                try? await loop.sleep(for: .milliseconds(100))
            }
        }
    }
}
