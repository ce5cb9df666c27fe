internal import BLESecPrimitives
internal import CBLESecBench

/// The reference that other layers are compared with: one library's cipher, called from C, on one
/// buffer.
@safe final class RawCipher {
    enum Library: String, CaseIterable {
        case sodium = "libsodium"
        case openSSL = "OpenSSL"
    }

    let library: Library
    private let sealing: OpaquePointer
    private let opening: OpaquePointer
    private let buffer: UnsafeMutablePointer<UInt8>
    private var nonce: UInt64 = 0

    /// Nil when the library lacks the cipher on this machine.
    init?(_ algorithm: AEADAlgorithm, _ library: Library) {
        let key = [UInt8](repeating: 7, count: AEADAlgorithm.keyLength)
        let rawLibrary = library == .sodium ? BLESEC_BENCH_SODIUM : BLESEC_BENCH_OPENSSL
        guard let sealing = unsafe blesec_bench_key_new(algorithm.raw, rawLibrary, key) else {
            return nil
        }
        guard let opening = unsafe blesec_bench_key_new(algorithm.raw, rawLibrary, key) else {
            unsafe blesec_bench_key_free(sealing)
            return nil
        }
        self.library = library
        unsafe self.sealing = sealing
        unsafe self.opening = opening
        unsafe buffer = .allocate(capacity: EngineScenario.bufferSize)
        unsafe buffer.initialize(repeating: 0, count: EngineScenario.bufferSize)
    }

    deinit {
        unsafe blesec_bench_key_free(sealing)
        unsafe blesec_bench_key_free(opening)
        unsafe buffer.deallocate()
    }
}

extension RawCipher: EngineLayer {
    var name: String { "raw" }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let succeeded = unsafe blesec_bench_seal_and_open(
            sealing, opening, buffer, count, nonce, Int32(repetitions))
        nonce += UInt64(repetitions)
        guard succeeded else { throw BenchError.wrongResult(library.rawValue) }
    }
}
