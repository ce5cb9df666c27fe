internal import Glibc

/// A layer that is made slower for tests: after each run, the layer keeps the processor busy for a
/// fraction of the run's time.
final class Slowdown: EngineLayer {
    private let layer: any EngineLayer
    private let fraction: Double

    /// The fraction that the environment variable `BLESEC_BENCH_SLOWDOWN` requests as a percentage;
    /// 0 unless the percentage is above 0 and at most 1,000.
    static var requested: Double {
        guard let text = unsafe getenv("BLESEC_BENCH_SLOWDOWN"),
            let percent = Double(unsafe String(cString: text)), percent > 0, percent <= 1_000
        else { return 0 }
        return percent / 100
    }

    init(_ layer: any EngineLayer, by fraction: Double) {
        self.layer = layer
        self.fraction = fraction
    }

    var name: String { layer.name }

    func moveBuffers(by gap: Int) throws { try layer.moveBuffers(by: gap) }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let start = Clock.threadTime
        try layer.sealAndOpen(count, repetitions: repetitions)
        let end = Clock.threadTime
        let target = end + UInt64(Double(end - start) * fraction)
        while Clock.threadTime < target {}
    }
}
