internal import CBLESecBench
internal import Glibc

/// Facts about the machine, for a report.
struct HostInfo: Sendable {
    let processor: String
    let cores: Int
    let kernel: String
    let sodium: String
    let openSSL: String

    static let this = HostInfo()

    /// The processor and the system, as a phrase.
    var machine: String { "\(processor), \(cores) cores, Linux \(kernel)" }

    /// Whether the build is optimized; figures of other builds are meaningless.
    static var isOptimized: Bool {
        #if DEBUG
            false
        #else
            true
        #endif
    }

    private init() {
        processor =
            InputFile.lines("/proc/cpuinfo").first { $0.hasPrefix("model name") }
            .flatMap { $0.split(separator: ":").last }
            .map { String($0.drop { $0 == " " }) } ?? "unknown"
        cores = sysconf(Int32(_SC_NPROCESSORS_ONLN))
        kernel = InputFile.lines("/proc/sys/kernel/osrelease").first.map(String.init) ?? "unknown"
        sodium = unsafe String(cString: blesec_bench_sodium_version())
        openSSL = unsafe String(cString: blesec_bench_openssl_version())
    }
}
