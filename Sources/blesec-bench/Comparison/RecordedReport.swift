internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// The part of a report file that `--compare` and `judge` need.
struct RecordedReport: Sendable {
    struct Ratio: Sendable {
        var name: String
        var median: Double
        /// An approximation of the standard error of the median, as a fraction of the median.
        var standardError: Double
        var lessIsBetter: Bool
    }

    let path: String
    let ratios: [Ratio]

    /// - Throws: `noSuchFile`; `badData` if the file is no report of this schema, or if the report is
    ///   from a debug build and this program is not, or the other way round.
    init(_ path: String) throws(ChannelError) {
        self.path = path
        ratios = try JSONFile.read(path, as: "report to compare with") { json throws(JSONMisfit) in
            guard try json.text("schema") == ReportJSON.schema else {
                throw JSONMisfit("\(ReportJSON.schema) is wanted").within(member: "schema")
            }
            let isOptimized = try json.required("settings") { settings throws(JSONMisfit) in
                try settings.required("optimized") { value throws(JSONMisfit) in try value.truth() }
            }
            guard isOptimized == HostInfo.isOptimized else {
                throw JSONMisfit("a debug build cannot be compared with a release build")
            }
            return try json.list("ratios", Ratio.init)
        }
    }
}

extension RecordedReport.Ratio {
    fileprivate init(_ json: JSONValue) throws(JSONMisfit) {
        name = try json.text("name")
        median = try json.real("median")
        let count = try json.real("count")
        let spread = try json.real("spread")
        guard count >= 1, spread >= 0 else { throw JSONMisfit("no summary of samples") }
        standardError = spread / count.squareRoot()
        lessIsBetter = try json.required("less-is-better") { value throws(JSONMisfit) in
            try value.truth()
        }
    }
}
