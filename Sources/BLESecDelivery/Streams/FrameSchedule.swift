/// Chooses the class whose frame leaves next: the most urgent class, and from time to time a less
/// urgent one, so that no class waits for ever.
struct FrameSchedule: Sendable {
    /// After this many frames of more urgent classes, a class that waits gets a frame.
    private static let maximumPassed = 8

    /// For each class, how many frames of more urgent classes have left since its last frame, while
    /// the class had a frame to send.
    private var passed: [3 of Int] = [0, 0, 0]

    /// Chooses the class whose frame is next. `ready` are the classes that have a frame; returns nil
    /// if `ready` is empty.
    mutating func choose(_ ready: Set) -> FramePriority? {
        var chosen: FramePriority?
        for priority in FramePriority.allCases where ready.contains(priority) {
            if chosen == nil || passed[Int(priority.rawValue)] >= Self.maximumPassed {
                chosen = priority
            }
        }
        guard let chosen else { return nil }
        for priority in FramePriority.allCases where priority > chosen && ready.contains(priority) {
            passed[Int(priority.rawValue)] += 1
        }
        passed[Int(chosen.rawValue)] = 0
        return chosen
    }

    /// A set of classes.
    struct Set: Sendable {
        private var bits: UInt8 = 0

        func contains(_ priority: FramePriority) -> Bool { bits & 1 << priority.rawValue != 0 }
        mutating func insert(_ priority: FramePriority) { bits |= 1 << priority.rawValue }
        var isEmpty: Bool { bits == 0 }
    }
}
