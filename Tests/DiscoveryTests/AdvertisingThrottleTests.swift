import BLESecDiscovery
import BLESecLinks
import Testing

@Suite("When advertising is stopped")
struct AdvertisingThrottleTests {
    var gate = AdvertisingThrottle()
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    @Test("advertising stops after the limit of failures within the window, and resumes by itself")
    mutating func crowd() {
        for _ in 1..<gate.threshold {
            gate.failed(at: now)
            #expect(gate.reopens(at: now) == nil)
        }
        gate.failed(at: now)
        #expect(gate.reopens(at: now) == now.advanced(by: gate.cooldown))
        #expect(gate.reopens(at: now.advanced(by: gate.cooldown)) == nil)
    }

    @Test("failures at a slow rate do not stop advertising")
    mutating func trickle() {
        for _ in 0..<gate.threshold * 4 {
            gate.failed(at: now)
            now = now.advanced(by: gate.window / (gate.threshold - 2))
            #expect(gate.reopens(at: now) == nil)
        }
    }

    @Test("continued failures keep advertising stopped")
    mutating func siege() {
        for _ in 0..<gate.threshold * 8 {
            gate.failed(at: now)
            now = now.advanced(by: .milliseconds(100))
        }
        #expect(gate.reopens(at: now) != nil)
    }
}
