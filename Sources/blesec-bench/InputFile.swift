internal import BLESecChannelCore
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// Reads whole files.
enum InputFile {
    /// The bytes of the file; nil if reading fails, with the error in `errno`. Reading stops once
    /// more than `limit` bytes are read, so a result longer than `limit` may be incomplete.
    static func read(_ path: String, stoppingAbove limit: Int = .max) -> [UInt8]? {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count <= limit {
            let count = unsafe Glibc.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return nil }
            guard count > 0 else { break }
            bytes += piece[..<count]
        }
        return bytes
    }

    /// The lines of the file; none if it cannot be read.
    static func lines(_ path: String) -> [Substring] {
        String(decoding: read(path) ?? [], as: UTF8.self).split(separator: "\n")
    }
}

/// Reads files of JSON.
enum JSONFile {
    /// The size in bytes of the largest accepted file: about forty times the size of a report of all
    /// scenarios.
    private static let maximumSize = 16 << 20

    /// Passes the JSON value in the file to `parse`, and returns the result. An error's reason says
    /// that the file is no `kind`.
    ///
    /// - Throws: `noSuchFile` if the file cannot be read; `badData`.
    static func read<Value>(
        _ path: String, as kind: String, _ parse: (JSONValue) throws(JSONMisfit) -> Value
    ) throws(ChannelError) -> Value {
        func bad(_ reason: String) -> ChannelError {
            ChannelError(.badData, "\(path) is no \(kind): \(reason)")
        }
        guard let bytes = InputFile.read(path, stoppingAbove: maximumSize) else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        guard bytes.count <= maximumSize else { throw bad("more than \(maximumSize >> 20) MiB") }
        let json: JSONValue
        do throws(JSONReader.Failure) {
            json = try JSONReader.read(bytes)
        } catch {
            throw bad("offset \(error.position): \(error.reason)")
        }
        do throws(JSONMisfit) {
            return try parse(json)
        } catch {
            throw bad(error.place.isEmpty ? error.reason : "\(error.place): \(error.reason)")
        }
    }
}
