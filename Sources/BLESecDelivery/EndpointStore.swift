/// Keeps the state of a ``DeliveryEndpoint``, so that this state outlives the process.
package protocol EndpointStore: AnyObject, Sendable {
    /// Claims the store for the caller, and returns the state that the store had when it was
    /// opened; nil if the store was claimed before. The store keeps no copy of the state in memory.
    func claim() -> StoredEndpoint?
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
