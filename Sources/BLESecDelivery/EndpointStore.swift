/// Where an endpoint's state outlives the process.
package protocol EndpointStore: AnyObject, Sendable {
    /// What the store had when it was opened.
    var stored: StoredEndpoint { get }
    /// Takes the store for one connection; false if one has taken it already.
    func claim() -> Bool
    /// Commits the changes as one, in their order; returns when they are durable. Called on one
    /// thread at a time.
    func commit(_ changes: [StoreChange]) throws(StoreFailure)
    /// Lets others open the store; nothing is committed any more.
    func close()
}

/// Why a store cannot commit.
package struct StoreFailure: Error {
    package let reason: String
    package init(_ reason: String) { self.reason = reason }
}
