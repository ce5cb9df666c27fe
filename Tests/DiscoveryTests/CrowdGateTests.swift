import BLESecDiscovery
import BLESecLinks
import Testing

@Suite("whether to be found in a crowd")
struct CrowdGateTests {
    var gate = CrowdGate()
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    @Test("closes at the number of failures within the time, and opens by itself")
    mutating func crowd() {
        for _ in 1..<gate.most {
            gate.failed(at: now)
            #expect(gate.reopens(at: now) == nil)
        }
        gate.failed(at: now)
        #expect(gate.reopens(at: now) == now.advanced(by: gate.pause))
        #expect(gate.reopens(at: now.advanced(by: gate.pause)) == nil)
    }

    @Test("those that come slowly do not close it")
    mutating func trickle() {
        for _ in 0..<gate.most * 4 {
            gate.failed(at: now)
            now = now.advanced(by: gate.within / (gate.most - 2))
            #expect(gate.reopens(at: now) == nil)
        }
    }

    @Test("a crowd that stays keeps it closed")
    mutating func siege() {
        for _ in 0..<gate.most * 8 {
            gate.failed(at: now)
            now = now.advanced(by: .milliseconds(100))
        }
        #expect(gate.reopens(at: now) != nil)
    }
}
