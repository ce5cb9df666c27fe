internal import CBLESecBench

/// The limit: two OpenSSL connections with a pair of BIOs between them, driven from C.
@safe final class RawTLS: @unchecked Sendable {
    // Unchecked because only one thread measures at a time.
    private let tls: OpaquePointer
    private let buffer: UnsafeMutablePointer<UInt8>

    /// Reads an authority's certificate, and each side's certificate and key from `PREFIX.pem` and
    /// `PREFIX.key`.
    init(authority: String, _ dialer: String, _ acceptor: String) throws {
        let made = unsafe (dialer + ".pem").withCString { certificate in
            unsafe (dialer + ".key").withCString { key in
                unsafe (acceptor + ".pem").withCString { otherCertificate in
                    unsafe (acceptor + ".key").withCString { otherKey in
                        unsafe blesec_bench_tls_new(
                            authority, [certificate, otherCertificate], [key, otherKey])
                    }
                }
            }
        }
        guard let made = unsafe made else { throw BenchError.wrongResult("OpenSSL") }
        unsafe tls = made
        unsafe buffer = .allocate(capacity: EngineScenario.bufferSize)
        unsafe buffer.initialize(repeating: 0, count: EngineScenario.bufferSize)
    }

    deinit {
        unsafe blesec_bench_tls_free(tls)
        unsafe buffer.deallocate()
    }
}

extension RawTLS: EngineLayer {
    var name: String { "raw" }

    /// The plaintext is a channel's record with its length.
    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        guard
            unsafe blesec_bench_tls_seal_and_open(
                tls, buffer, count + TLSEngineLayer.lengthSize, Int32(repetitions))
        else { throw BenchError.wrongResult("OpenSSL") }
    }
}

extension RawTLS: HandshakeLimit {
    var counts: HandshakeCalls.Counts? { nil }

    func run(_ repetitions: Int) throws -> Double {
        let start = Clock.threadTime
        guard unsafe blesec_bench_tls_shake_hands(tls, Int32(repetitions)) else {
            throw BenchError.wrongResult("OpenSSL")
        }
        return Double(Clock.threadTime - start)
    }
}
