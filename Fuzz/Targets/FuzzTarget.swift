internal import Glibc

/// A part of the project that takes bytes from outside, with seed inputs.
struct FuzzTarget: Sendable {
    let name: String
    /// Handles the input as if an attacker had sent it; a trap is a finding.
    let run: @Sendable ([UInt8]) -> Void
    /// Inputs, made with the project's own code, that reach code beyond the first checks.
    let seeds: @Sendable () throws -> [[UInt8]]

    static let all = [
        negotiation, machine, engine, tls, noise, text, certificate, files, vectors, discovery,
        stream, delivery,
    ]

    /// Writes each seed to a file of its own.
    func writeSeeds(to folder: String) throws {
        for (index, seed) in try seeds().enumerated() {
            Folder.write(seed, to: "\(folder)/seed-\(index)")
        }
    }
}

/// Runs a step that must not throw: a preparation, or a call that has to succeed. An error here is
/// a finding, as a trap is.
func must<Value: ~Copyable>(_ body: () throws -> Value) -> Value {
    do {
        return try body()
    } catch {
        fatalError("\(error)")
    }
}

/// The folder for the targets' files, in memory. The folder is removed when the process exits;
/// after a trap it stays.
enum Folder {
    static let path: String = {
        var template = Array("/dev/shm/blesec-fuzz-XXXXXX".utf8CString)
        let made = unsafe template.withUnsafeMutableBufferPointer { buffer in
            unsafe buffer.baseAddress.flatMap { unsafe mkdtemp($0) }.map {
                unsafe String(cString: $0)
            }
        }
        guard let made else {
            fatalError("no folder can be made in /dev/shm")
        }
        let path = made
        atexit { Folder.remove() }
        return path
    }()

    /// Makes a file of mode 0600 with `bytes` at `path`.
    static func write(_ bytes: [UInt8], to path: String) {
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { fatalError("\(path) cannot be written") }
        defer { close(descriptor) }
        let count = unsafe Glibc.write(descriptor, bytes, bytes.count)
        precondition(count == bytes.count)
    }

    static func remove(_ path: String) { unsafe unlink(path) }

    private static func remove() {
        guard let directory = unsafe opendir(path) else { return }
        defer { unsafe closedir(directory) }
        let offset = MemoryLayout<dirent>.offset(of: \.d_name) ?? 0
        while let entry = unsafe readdir(directory) {
            let name = unsafe (UnsafeRawPointer(entry) + offset).assumingMemoryBound(to: CChar.self)
            unsafe unlink("\(path)/\(String(cString: name))")
        }
        unsafe rmdir(path)
    }
}
