/// The handlers of a service's events. Each handler belongs to an object, and ends with the object.
struct NearbyEventHandlers {
    private struct Entry {
        weak var owner: AnyObject?
        let handle: @Sendable (NearbyEvent) -> Void
    }

    private var entries: [Entry] = []
    /// How many handlers are stored. Handlers whose owners are gone are removed when the next
    /// handler is added.
    var count: Int { entries.count }

    mutating func add(_ handle: @escaping @Sendable (NearbyEvent) -> Void, for owner: AnyObject) {
        entries.removeAll { $0.owner == nil }
        entries.append(Entry(owner: owner, handle: handle))
    }

    func tell(_ event: NearbyEvent) {
        for entry in entries where entry.owner != nil { entry.handle(event) }
    }
}
