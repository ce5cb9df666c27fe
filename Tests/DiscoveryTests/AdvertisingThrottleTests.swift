import BLESecDiscovery
import BLESecLinks
import Testing

@Suite("When advertising is stopped")
struct AdvertisingThrottleTests {
    var throttle = AdvertisingThrottle()
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    @Test(
        "advertising stops when the failures within the window reach the limit, and resumes by itself"
    )
    mutating func stopsAndResumes() {
        for _ in 1..<throttle.threshold {
            throttle.failed(at: now)
            #expect(throttle.reopens(at: now) == nil)
        }
        throttle.failed(at: now)
        #expect(throttle.reopens(at: now) == now.advanced(by: throttle.cooldown))
        #expect(throttle.reopens(at: now.advanced(by: throttle.cooldown)) == nil)
    }

    @Test("failures at a slow rate do not stop advertising")
    mutating func slowFailures() {
        for _ in 0..<throttle.threshold * 4 {
            throttle.failed(at: now)
            now = now.advanced(by: throttle.window / (throttle.threshold - 2))
            #expect(throttle.reopens(at: now) == nil)
        }
    }

    @Test("continued failures keep advertising stopped")
    mutating func continuedFailures() {
        for _ in 0..<throttle.threshold * 8 {
            throttle.failed(at: now)
            now = now.advanced(by: .milliseconds(100))
        }
        // The first stop alone would end earlier.
        #expect(throttle.reopens(at: now.advanced(by: throttle.cooldown - .seconds(1))) != nil)
    }
}
