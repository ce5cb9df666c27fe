import BLESecDiscovery
import BLESecLocking
import Testing

@testable import BLESec

@Suite("The handlers of a service's events")
struct NearbyEventHandlersTests {
    private final class Owner {}

    @Test("a handler is told of events only while its owner lives, and is removed afterwards")
    func owner() {
        let calls = Locked<[String]>([])
        var handlers = NearbyEventHandlers()
        let lastingOwner = Owner()
        handlers.add({ _ in calls.withLock { $0.append("lasting") } }, for: lastingOwner)
        for _ in 0..<100 {
            let briefOwner = Owner()
            handlers.add({ _ in calls.withLock { $0.append("brief") } }, for: briefOwner)
            #expect(handlers.count == 2)
            calls.withLock { $0 = [] }
            handlers.tell(.adapter(.on))
            #expect(calls.withLock({ $0 }) == ["lasting", "brief"])
            withExtendedLifetime(briefOwner) {}
        }
        calls.withLock { $0 = [] }
        handlers.tell(.adapter(.on))
        #expect(calls.withLock({ $0 }) == ["lasting"])
        withExtendedLifetime(lastingOwner) {}
    }
}
