internal import BLESecFiles
internal import BLESecJSON
internal import Glibc

/// The text and the JSON members that report a transfer that has ended.
enum TransferText {
    static func summary(_ transfer: FileTransfer, seconds: Double) -> String {
        let progress = transfer.current
        let files = transfer.isFolder ? "\(progress.files) files, " : ""
        let rate = TransferDisplay.clampedInteger(Double(progress.totalBytes) / max(seconds, 0.001))
        let tenths = Int((seconds * 10).rounded())
        return "\(files)\(TransferDisplay.size(progress.totalBytes)) in "
            + "\(tenths / 10).\(tenths % 10) s, \(TransferDisplay.size(rate))/s"
    }

    static func members(
        _ transfer: FileTransfer, _ name: String, seconds: Double
    ) -> [(String, JSONValue)] {
        let progress = transfer.current
        return [
            ("name", .string(transfer.name)), ("stored-as", .string(name)),
            ("bytes", .number(Int(clamping: progress.totalBytes))),
            ("files", .number(progress.files)),
            (
                "milliseconds",
                .number(Int(clamping: TransferDisplay.clampedInteger(seconds * 1_000)))
            ),
        ]
    }
}

/// A file or folder that is to be sent.
struct SourcePath {
    private let path: String
    private let status: stat?

    init(_ path: String) {
        self.path = path
        var status = stat()
        self.status = unsafe stat(path, &status) == 0 ? status : nil
    }

    /// Whether the path leads to a file or folder that can be read, and not to a device or a pipe.
    var isReadable: Bool {
        guard let status, [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT) else { return false }
        return unsafe access(path, R_OK) == 0
    }

    /// The size of a file in bytes; nil if the path does not lead to a regular file.
    var bytes: UInt64? {
        guard let status, status.st_mode & S_IFMT == S_IFREG else { return nil }
        return UInt64(max(0, status.st_size))
    }
}
