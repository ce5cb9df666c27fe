/// Keeps an endpoint's state, so that it outlives the process.
package protocol EndpointStore: AnyObject, Sendable {
    /// The state in the store when it was opened.
    var stored: StoredEndpoint { get }
    /// Claims the store for one connection; false if a connection has claimed it already.
    func claim() -> Bool
    /// Commits the changes in their order and in one transaction; returns when they are durable.
    /// Called on one thread at a time.
    func commit(_ changes: [StoreChange]) throws(StoreFailure)
    /// Closes the store, so that others can open it; a later commit fails.
    func close()
}

/// Why a store cannot commit.
package struct StoreFailure: Error {
    package let reason: String
    package init(_ reason: String) { self.reason = reason }
}
