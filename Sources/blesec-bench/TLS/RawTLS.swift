internal import CBLESecBench

/// The reference that `TLSEngine` is compared with: the two ends of an OpenSSL connection over a
/// pair of BIOs, driven from C.
@safe final class RawTLS: @unchecked Sendable {
    // Unchecked because only one thread measures at a time.
    private let tls: OpaquePointer
    private let buffer: UnsafeMutablePointer<UInt8>

    /// Reads the certificate of an authority from the file `authority`, and each side's certificate
    /// and key from `PREFIX.pem` and `PREFIX.key`. `dialer` and `acceptor` are the two prefixes.
    init(authority: String, dialer: String, acceptor: String) throws {
        let made = unsafe (dialer + ".pem").withCString { dialerCertificate in
            unsafe (dialer + ".key").withCString { dialerKey in
                unsafe (acceptor + ".pem").withCString { acceptorCertificate in
                    unsafe (acceptor + ".key").withCString { acceptorKey in
                        unsafe blesec_bench_tls_new(
                            authority, [dialerCertificate, acceptorCertificate],
                            [dialerKey, acceptorKey])
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

    func moveBuffers(by gap: Int) throws {
        guard unsafe blesec_bench_tls_connect(tls, gap) else {
            throw BenchError.wrongResult("OpenSSL")
        }
    }

    /// The plaintext is a record of `count` bytes and, before it, the record's length field.
    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        guard
            unsafe blesec_bench_tls_seal_and_open(
                tls, buffer, count + TLSEngineLayer.lengthSize, Int32(repetitions))
        else { throw BenchError.wrongResult("OpenSSL") }
    }
}

extension RawTLS: HandshakeReference {
    var counts: HandshakeCalls.Counts? { nil }

    func run(_ repetitions: Int) throws -> Double {
        let start = Clock.threadTime
        guard unsafe blesec_bench_tls_shake_hands(tls, Int32(repetitions)) else {
            throw BenchError.wrongResult("OpenSSL")
        }
        return Double(Clock.threadTime - start)
    }
}
