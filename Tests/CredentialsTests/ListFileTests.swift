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
            #expect(
                ListFile.isSettled(status, at: now) == isSettled, "\(seconds) s \(milliseconds) ms")
        }
    }

    @Test("a version that could stay the same does not show that a file is unchanged")
    func unsettled() {
        #expect(!ListFile.isUnchanged("/proc/self/none", since: nil))
        #expect(!ListFile.isUnchanged("/", since: nil))
        #expect(ListFile.isUnchanged("/", since: ListFile.version(of: "/")))
    }
}
