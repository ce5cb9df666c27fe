/// What accepts links from whoever dials.
package protocol LinkListener: AnyObject, Sendable {
    /// Waits for the next peer.
    ///
    /// Several tasks may wait; peers go to them in the order in which they came. A peer that nobody
    /// waits for waits in the kernel's queue, and beyond its bound is refused or kept waiting there.
    ///
    /// - Throws: ``LinkError/Code/closed`` once the listener is closed,
    ///   ``LinkError/Code/cancelled`` as soon as the task is cancelled; after anything else
    ///   (descriptors ran out) the listener lives on and the caller may wait a while and go on.
    func accept() async throws(LinkError) -> any Link

    /// Stops listening and frees the address, before it returns. Links that were accepted live on.
    ///
    /// May be called again. Dropping the last reference closes too, a moment later.
    func close() async

    /// Where peers can dial it, as the tools write endpoints.
    var localDescription: String { get }
}

extension LinkListener {
    /// Gives each link to `take`, one after another, until the listener is closed or the task is cancelled.
    package func acceptAll(on loop: EventLoop, _ take: (any Link) async -> Void) async {
        while !Task.isCancelled {
            do throws(LinkError) {
                await take(try await accept())
            } catch {
                if error.code == .cancelled || error.code == .closed { return }
                // Descriptors or memory ran out: those in use may come free.
                try? await loop.sleep(for: .milliseconds(100))
            }
        }
    }
}
