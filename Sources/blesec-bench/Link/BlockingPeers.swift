internal import CBLESecBench

/// Two threads in C that block in send and recv on a pair of SEQPACKET sockets.
struct BlockingPeers {
    struct Samples {
        /// Bytes of messages a second, one way.
        fileprivate(set) var goodput: [Double] = []
        /// Nanoseconds of a round trip.
        fileprivate(set) var roundTrips: [Double] = []
    }

    private var plain = Samples()
    /// The samples of threads that seal with ChaCha20-Poly1305.
    private var sealed = Samples()
    private let size: Int
    private let sampleTime: Double
    private let measuresRoundTrips: Bool

    /// Each sample takes `sampleTime` nanoseconds. No samples are taken if `sampleTime` is 0, or if
    /// messages of `size` bytes are too long for one packet.
    init(size: Int, sampleTime: Double, measuresRoundTrips: Bool) {
        self.size = size
        // A packet has to hold the whole record.
        self.sampleTime = size <= 32 << 10 ? sampleTime : 0
        self.measuresRoundTrips = measuresRoundTrips
    }

    /// The samples of the threads that do the same work as the engine; empty unless the engine is
    /// plain, or Noise with ChaCha20-Poly1305.
    func samples(comparableTo engine: EngineChoice) -> Samples {
        if engine == .plain { return plain }
        return engine.name.contains("_ChaChaPoly_") ? sealed : Samples()
    }

    /// Takes one sample without encryption and one with it.
    mutating func sample() {
        guard sampleTime > 0 else { return }
        sample(isSealed: false, &plain)
        sample(isSealed: true, &sealed)
    }

    private func sample(isSealed: Bool, _ samples: inout Samples) {
        // The library that `AEAD` in BLESecPrimitives uses with ChaCha20-Poly1305: OpenSSL from 384
        // bytes of plaintext on. The plaintext is the message and its type byte.
        let library = size + 1 < 384 ? BLESEC_BENCH_SODIUM : BLESEC_BENCH_OPENSSL
        let messageTime = time { blesec_bench_blocking_stream(size, $0, isSealed, library) }
        if let messageTime { samples.goodput.append(Double(size) / messageTime * 1e9) }
        guard measuresRoundTrips else { return }
        let roundTrip = time { blesec_bench_blocking_echo(size, $0, isSealed, library) }
        if let roundTrip { samples.roundTrips.append(roundTrip) }
    }

    /// Nanoseconds of one repetition, averaged over a sample; nil when a call failed.
    private func time(_ run: (Int32) -> Int64) -> Double? {
        let trialCount: Int32 = 64
        let first = run(trialCount)
        guard first >= 0 else { return nil }
        let fitting = sampleTime * Double(trialCount) / Double(max(1, first))
        let count = Int32(min(1e6, max(Double(trialCount), fitting)))
        let time = run(count)
        return time < 0 ? nil : Double(time) / Double(count)
    }
}
