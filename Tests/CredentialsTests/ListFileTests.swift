import Glibc
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

    @Test("a file that has no version from its last reading never counts as unchanged")
    func unsettled() {
        #expect(!ListFile.isUnchanged("/proc/self/none", since: nil))
        #expect(!ListFile.isUnchanged("/", since: nil))
        #expect(ListFile.isUnchanged("/", since: ListFile.version(of: "/")))
    }
}
