internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// The part of a report file that a comparison needs.
struct OldReport: Sendable {
    /// A ratio of the report.
    struct Ratio: Sendable {
        var name: String
        var median: Double
        /// About the standard error of the median, as a fraction of the median.
        var error: Double
    }

    let path: String
    let ratios: [Ratio]

    /// The largest accepted file, in bytes: about forty times a whole report.
    private static let maximumSize = 16 << 20

    /// Reads and checks the file.
    ///
    /// - Throws: `no-such-file`; `bad-data` for a file that is no report of this schema, or that
    ///   compares a debug build with a release build.
    init(_ path: String) throws(ChannelError) {
        self.path = path
        let bytes = try Self.read(path)
        let json: JSONValue
        do throws(JSONReader.Failure) {
            json = try JSONReader.read(bytes)
        } catch {
            throw Self.bad(path, "offset \(error.position): \(error.reason)")
        }
        do throws(JSONMisfit) {
            guard try json.text("schema") == ReportJSON.schema else {
                throw JSONMisfit("\(ReportJSON.schema) is wanted").within(member: "schema")
            }
            let isOptimized = try json.required("settings") { settings throws(JSONMisfit) in
                try settings.required("optimized") { it throws(JSONMisfit) in try it.truth() }
            }
            guard isOptimized == HostInfo.isOptimized else {
                throw JSONMisfit("a debug build and a release build have nothing in common")
            }
            ratios = try json.list("ratios", Ratio.init)
        } catch {
            throw Self.bad(
                path, error.place.isEmpty ? error.reason : "\(error.place): \(error.reason)")
        }
    }

    private static func bad(_ path: String, _ what: String) -> ChannelError {
        ChannelError(.badData, "\(path) is no report to compare with: \(what)")
    }

    private static func read(_ path: String) throws(ChannelError) -> [UInt8] {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(path) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 1 << 16)
        while bytes.count <= maximumSize {
            let count = unsafe Glibc.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failure(path) }
            guard count > 0 else { return bytes }
            bytes += piece[..<count]
        }
        throw bad(path, "more than \(maximumSize >> 20) MiB")
    }

    private static func failure(_ path: String) -> ChannelError {
        let number = errno
        let text = unsafe strerror(number).map { unsafe String(cString: $0) }
        return ChannelError(
            .noSuchFile, "\(path) cannot be read: \(text ?? "error \(number)")",
            underlying: .errno(number))
    }
}

extension OldReport.Ratio {
    fileprivate init(_ json: JSONValue) throws(JSONMisfit) {
        name = try json.text("name")
        median = try json.real("median")
        let count = try json.real("count")
        let spread = try json.real("spread")
        guard count >= 1, spread >= 0 else { throw JSONMisfit("no summary of samples") }
        error = spread / count.squareRoot()
    }
}
