import BLESecDiscovery
import BLESecLinks
import Testing

@Suite("whether to be found in a crowd")
struct AdvertisingThrottleTests {
    var gate = AdvertisingThrottle()
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    @Test("closes at the number of failures within the time, and opens by itself")
    mutating func crowd() {
        for _ in 1..<gate.threshold {
            gate.failed(at: now)
            #expect(gate.reopens(at: now) == nil)
        }
        gate.failed(at: now)
        #expect(gate.reopens(at: now) == now.advanced(by: gate.cooldown))
        #expect(gate.reopens(at: now.advanced(by: gate.cooldown)) == nil)
    }

    @Test("those that come slowly do not close it")
    mutating func trickle() {
        for _ in 0..<gate.threshold * 4 {
            gate.failed(at: now)
            now = now.advanced(by: gate.window / (gate.threshold - 2))
            #expect(gate.reopens(at: now) == nil)
        }
    }

    @Test("a crowd that stays keeps it closed")
    mutating func siege() {
        for _ in 0..<gate.threshold * 8 {
            gate.failed(at: now)
            now = now.advanced(by: .milliseconds(100))
        }
        #expect(gate.reopens(at: now) != nil)
    }
}
