internal import BLESecNoise
internal import BLESecPrimitives
internal import CBLESecBench

/// The reference for a Noise handshake: its calls of primitives, made from C in the same order.
@safe final class RawHandshake: HandshakeReference {
    let calls: HandshakeCalls
    var counts: HandshakeCalls.Counts? { calls.counts }
    private let primitives: OpaquePointer

    /// Nil when a library lacks a primitive on this machine.
    init?(_ name: ProtocolName) {
        guard
            let primitives = unsafe blesec_bench_primitives_new(
                name.curve.raw, name.aead.raw, name.hash.raw)
        else { return nil }
        unsafe self.primitives = primitives
        calls = HandshakeCalls(name)
    }

    deinit { unsafe blesec_bench_primitives_free(primitives) }

    func run(_ repetitions: Int) throws -> Double {
        let start = Clock.threadTime
        let succeeded = unsafe calls.list.withUnsafeBufferPointer { calls in
            guard let first = calls.baseAddress else { return false }
            return unsafe blesec_bench_perform(primitives, first, calls.count, Int32(repetitions))
        }
        guard succeeded else { throw BenchError.wrongResult("a primitive") }
        return Double(Clock.threadTime - start)
    }
}

extension Curve {
    fileprivate var raw: blesec_bench_curve {
        switch self {
        case .x25519: BLESEC_BENCH_X25519
        case .x448: BLESEC_BENCH_X448
        }
    }
}

extension AEADAlgorithm {
    var raw: blesec_bench_algorithm {
        switch self {
        case .chaChaPoly: BLESEC_BENCH_CHACHAPOLY
        case .aesGCM: BLESEC_BENCH_AESGCM
        }
    }
}

extension HashAlgorithm {
    fileprivate var raw: blesec_bench_hash {
        switch self {
        case .sha256: BLESEC_BENCH_SHA256
        case .sha512: BLESEC_BENCH_SHA512
        case .blake2s: BLESEC_BENCH_BLAKE2S
        case .blake2b: BLESEC_BENCH_BLAKE2B
        }
    }
}
