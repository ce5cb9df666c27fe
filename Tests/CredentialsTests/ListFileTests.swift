import Glibc
import TestSupport
import Testing

@testable import BLESecCredentials

/// The versions by which a changed file is noticed.
@Suite struct ListFileTests {
    @Test("a version is used only if the last change is more than 20 ms away from the reading")
    func settled() {
        let millisecond = 1_000_000
        let now = timespec(tv_sec: 1_000, tv_nsec: 10 * millisecond)
        for (seconds, milliseconds, isSettled) in [
            (0, 0, true), (999, 989, true), (999, 991, false), (1_000, 10, false),
            (1_000, 29, false), (1_000, 31, true), (2_000, 0, true), (Int.max, 0, true),
            (Int.min, 0, true),
        ] {
            var status = stat()
            status.st_ctim = timespec(tv_sec: seconds, tv_nsec: milliseconds * millisecond)
            // A time that is not a whole second shows that the file system stores fractions.
            status.st_mtim.tv_nsec = 1
            #expect(
                ListFile.isSettled(status, at: now) == isSettled, "\(seconds) s \(milliseconds) ms")
        }
    }

    @Test(
        "with times in whole seconds, the last change has to be over 3 s away from the reading")
    func settledWholeSeconds() {
        let now = timespec(tv_sec: 1_000, tv_nsec: 500_000_000)
        for (changed, isSettled) in [(1_000, false), (998, false), (997, true), (1_004, true)] {
            var status = stat()
            status.st_ctim.tv_sec = changed
            status.st_mtim.tv_sec = 1
            #expect(ListFile.isSettled(status, at: now) == isSettled, "\(changed) s")
        }
    }

    @Test("a file that was changed immediately before it is read has no version")
    func justChanged() throws {
        let folder = ScratchFolder()
        // If the machine stops this process for longer than 20 ms, the change is no longer recent.
        let hasNoVersion = try (0..<1_000).contains { number in
            let file = try ListFile(folder.write("list", "\(number)"))
            return try #require(file).version == nil
        }
        #expect(hasNoVersion)
    }

    @Test("files that differ in device, inode, size or one of the two times differ in version")
    func versions() {
        var status = stat()
        status.st_mtim = timespec(tv_sec: 1_000, tv_nsec: 1)
        status.st_ctim = timespec(tv_sec: 1_000, tv_nsec: 1)
        // A program can set `st_mtim` back after it has changed the content, but not `st_ctim`.
        let changes: [(inout stat) -> Void] = [
            { _ in }, { $0.st_dev = 7 }, { $0.st_ino = 7 }, { $0.st_size = 7 },
            { $0.st_mtim.tv_sec = 7 }, { $0.st_mtim.tv_nsec = 7 }, { $0.st_ctim.tv_sec = 7 },
            { $0.st_ctim.tv_nsec = 7 },
        ]
        let versions = changes.map { change in
            var changed = status
            change(&changed)
            return ListFile.FileVersion(changed)
        }
        #expect(Set(versions).count == changes.count)
    }

    @Test("a file that had no version when it was last read always counts as changed")
    func unsettled() {
        #expect(!ListFile.isUnchanged("/proc/self/none", since: nil))
        #expect(!ListFile.isUnchanged("/", since: nil))
        #expect(ListFile.isUnchanged("/", since: ListFile.version(of: "/")))
    }
}
