import BLESecDiscovery
import BLESecLinks
import Testing

@Suite("What makes advertising stop")
struct AdvertisingThrottleTests {
    var throttle = AdvertisingThrottle()
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    @Test(
        "advertising stops when enough peers fail within the window, and resumes by itself"
    )
    mutating func stopsAndResumes() {
        for _ in 1..<throttle.threshold {
            throttle.peerFailed(at: now)
            #expect(throttle.resumptionTime(asOf: now) == nil)
        }
        throttle.peerFailed(at: now)
        #expect(throttle.resumptionTime(asOf: now) == now.advanced(by: throttle.cooldown))
        #expect(throttle.resumptionTime(asOf: now.advanced(by: throttle.cooldown)) == nil)
    }

    @Test("peers that fail to authenticate at a slow rate do not stop advertising")
    mutating func slowFailures() {
        for _ in 0..<throttle.threshold * 4 {
            throttle.peerFailed(at: now)
            now = now.advanced(by: throttle.window / (throttle.threshold - 2))
            #expect(throttle.resumptionTime(asOf: now) == nil)
        }
    }

    @Test("peers that continue to fail do not prolong a stop, and count again after it")
    mutating func continuedFailures() {
        for _ in 1..<throttle.threshold { #expect(throttle.peerFailed(at: now) == false) }
        #expect(throttle.peerFailed(at: now) == true)
        let end = now.advanced(by: throttle.cooldown)
        while now < end {
            #expect(throttle.peerFailed(at: now) == false)
            #expect(throttle.resumptionTime(asOf: now) == end)
            now = now.advanced(by: .milliseconds(100))
        }
        for _ in 1..<throttle.threshold {
            throttle.peerFailed(at: end)
            #expect(throttle.resumptionTime(asOf: end) == nil)
        }
        #expect(throttle.peerFailed(at: end) == true)
    }
}
