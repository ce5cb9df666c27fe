internal import CBLESecBench
internal import Glibc

/// The resources of this process at one moment.
struct ProcessState: Sendable {
    /// Bytes of memory that are resident, and those that are locked.
    var resident = 0
    var locked = 0
    /// Bytes that are allocated on the heap.
    var heap = 0
    var descriptors = 0
    var threads = 0
    /// Memory mappings, of which Linux allows 65,530 by default.
    var maps = 0

    /// The current state, after free memory has been given back to the kernel.
    static var now: ProcessState {
        var state = ProcessState()
        state.heap = Int(blesec_bench_trimmed_heap())
        state.descriptors = entries(of: "/proc/self/fd")
        state.threads = entries(of: "/proc/self/task")
        state.maps = InputFile.read("/proc/self/maps")?.count { $0 == UInt8(ascii: "\n") } ?? 0
        for line in InputFile.lines("/proc/self/status") {
            let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })
            guard words.count >= 2, let kibibytes = Int(words[1]) else { continue }
            if words[0] == "VmRSS:" { state.resident = kibibytes << 10 }
            if words[0] == "VmLck:" { state.locked = kibibytes << 10 }
        }
        return state
    }

    private static func entries(of path: String) -> Int {
        guard let folder = unsafe opendir(path) else { return 0 }
        defer { unsafe closedir(folder) }
        var count = 0
        while unsafe readdir(folder) != nil { count += 1 }
        // The entries `.` and `..` do not count and, in `/proc/self/fd`, neither does the descriptor
        // that reads the folder.
        return count - (path.hasSuffix("fd") ? 3 : 2)
    }
}
