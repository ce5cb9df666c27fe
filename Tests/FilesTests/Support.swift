import BLESecPrimitives
import Foundation
import Glibc
import TestSupport

/// The seed of this run's random chains of interrupted transfers: a fixed value, unless
/// `BLESEC_SEED` sets another.
enum RunSeed {
    static let value: UInt64 = {
        let chosen = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        // Limited, so that the tests can add to it without an overflow.
        let seed = (chosen ?? 1) % 1_000_000_000
        print("FilesTests: chains from seed \(seed); BLESEC_SEED=N sets another")
        return seed
    }()
}

extension SeededGenerator {
    /// A number below `bound`.
    mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }
}

/// A temporary folder in which a test can make folders and symbolic links.
struct TemporaryFolder {
    private let folder = ScratchFolder()

    var names: [String] { folder.names }
    func path(_ name: String) -> String { folder.file(name) }
    func read(_ name: String) -> [UInt8]? { folder.read(name) }
    func write(_ name: String, _ bytes: [UInt8]) throws { folder.write(name, bytes) }

    func makeFolder(_ name: String) throws {
        try FileManager.default.createDirectory(
            atPath: path(name), withIntermediateDirectories: true)
    }

    func link(_ name: String, to target: String) throws {
        try FileManager.default.createSymbolicLink(
            atPath: path(name), withDestinationPath: target)
    }

    func names(in name: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path(name))) ?? []).sorted()
    }

    /// The paths of all files below the folder `name`, sorted. Each path begins with `name`.
    func files(below name: String) -> [String] {
        let paths = FileManager.default.enumerator(atPath: path(name))?.allObjects ?? []
        return paths.compactMap { $0 as? String }.map { "\(name)/\($0)" }.filter { path in
            var status = stat()
            return unsafe lstat(self.path(path), &status) == 0
                && status.st_mode & S_IFMT == S_IFREG
        }.sorted()
    }
}
