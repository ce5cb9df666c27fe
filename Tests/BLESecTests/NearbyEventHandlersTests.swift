import BLESecDiscovery
import BLESecLocking
import Testing

@testable import BLESec

@Suite("The handlers of a service's events")
struct NearbyEventHandlersTests {
    private final class Owner {}

    @Test("a handler is told of events while its owner lives, and is then removed")
    func owner() {
        let calls = Locked<[String]>([])
        var handlers = NearbyEventHandlers()
        let lasting = Owner()
        handlers.add({ _ in calls.withLock { $0.append("lasting") } }, for: lasting)
        for _ in 0..<100 {
            let passing = Owner()
            handlers.add({ _ in calls.withLock { $0.append("passing") } }, for: passing)
            #expect(handlers.count == 2)
            calls.withLock { $0 = [] }
            handlers.tell(.adapter(.on))
            #expect(calls.withLock({ $0 }) == ["lasting", "passing"])
            withExtendedLifetime(passing) {}
        }
        calls.withLock { $0 = [] }
        handlers.tell(.adapter(.on))
        #expect(calls.withLock({ $0 }) == ["lasting"])
        withExtendedLifetime(lasting) {}
    }
}
