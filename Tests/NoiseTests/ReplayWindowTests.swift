import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import Testing

@Suite struct ReplayWindowTests {
    @Test("each nonce is accepted once")
    func once() {
        #expect(verdicts([0, 0, 2, 1, 2, 1]) == [true, false, true, true, false, false])
    }

    @Test("the lowest nonce in the window is accepted, and the nonce below it is refused")
    func edge() {
        let below = 10_000 - ReplayWindow.size
        #expect(verdicts([10_000, below, below + 1, below + 1]) == [true, false, true, false])
    }

    @Test("after a jump beyond the window, every other nonce in the window is still accepted")
    func leap() {
        let far: UInt64 = 1 << 40
        let inside = Array((far - ReplayWindow.size + 1)..<far)
        let all = verdicts(Array(0..<100) + [far] + inside + [far])
        #expect(!all.dropLast().contains(false))
        #expect(all.last == false)
    }

    @Test("the last nonce, 2^64 − 2, is accepted, and the reserved nonce, 2^64 − 1, never is")
    func last() {
        let nonces: [UInt64] = [.max, .max - 1, .max - 1, .max, .max - 2]
        #expect(verdicts(nonces) == [false, true, false, false, true])
    }

    @Test(
        "a nonce is accepted if and only if it is not below the window and was not accepted before",
        arguments: [1, 2, 3, 4] as [UInt64])
    func model(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var window = ReplayWindow()
        var seen: Set<UInt64> = []
        var highest: UInt64 = 0
        for _ in 0..<20_000 {
            let limit: UInt64 = Bool.random(using: &generator) ? 40 : 3_000
            let distance = UInt64.random(in: 0...limit, using: &generator)
            let nonce =
                Bool.random(using: &generator)
                ? highest + distance : highest - min(highest, distance)
            let isNotBelow = nonce > highest || highest - nonce < ReplayWindow.size
            let isAccepted = window.accept(nonce)
            #expect(isAccepted == (isNotBelow && !seen.contains(nonce)), "seed \(seed)")
            if isNotBelow { seen.insert(nonce) }
            highest = max(highest, nonce)
        }
    }

    /// For each nonce, whether a window that begins empty accepts it. Expects that `isNew` gives
    /// the same answer beforehand.
    private func verdicts(_ nonces: [UInt64]) -> [Bool] {
        var window = ReplayWindow()
        return nonces.map { nonce in
            let isNew = window.isNew(nonce)
            let isAccepted = window.accept(nonce)
            #expect(isNew == isAccepted, "nonce \(nonce)")
            return isAccepted
        }
    }
}
