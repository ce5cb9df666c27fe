internal import CBLESecBench
internal import Glibc

/// Facts about the machine, for a report.
struct HostInfo: Sendable {
    /// The name of the processor.
    let processor: String
    let cores: Int
    let kernel: String
    let sodium: String
    let openSSL: String

    /// This machine.
    static let this = HostInfo()

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
            Self.lines(of: "/proc/cpuinfo").first { $0.hasPrefix("model name") }
            .flatMap { $0.split(separator: ":").last }
            .map { String($0.drop { $0 == " " }) } ?? "unknown"
        cores = sysconf(Int32(_SC_NPROCESSORS_ONLN))
        kernel = Self.lines(of: "/proc/sys/kernel/osrelease").first ?? "unknown"
        sodium = unsafe String(cString: blesec_bench_sodium_version())
        openSSL = unsafe String(cString: blesec_bench_openssl_version())
    }

    private static func lines(of path: String) -> [String] {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let count = unsafe bytes.withUnsafeMutableBytes {
            unsafe read(descriptor, $0.baseAddress, $0.count)
        }
        let text = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
        return text.split(separator: "\n").map(String.init)
    }
}
