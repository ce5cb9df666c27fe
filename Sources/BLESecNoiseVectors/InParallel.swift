/// Calls `body` with the numbers from 0 to `count` − 1 on all cores, and returns the results in the
/// order of the numbers.
///
/// - Parameters:
///   - count: the number of calls.
///   - body: the work of one call. Calls are distributed in groups of 32, which suits calls of
///     about a millisecond. Shorter calls would have much overhead; with longer calls, some cores
///     would be idle at the end.
///   - progress: called from time to time with the number of finished calls.
package func inParallel<Value: Sendable>(
    _ count: Int, _ body: @escaping @Sendable (Int) -> Value, progress: (Int) -> Void = { _ in }
) async -> [Value] {
    let callsPerTask = 32
    return await withTaskGroup(of: (start: Int, values: [Value]).self) { group in
        for start in stride(from: 0, to: count, by: callsPerTask) {
            // Not on the caller's executor, which may have only one thread.
            group.addTask(executorPreference: globalConcurrentExecutor) {
                (start, (start..<min(start + callsPerTask, count)).map(body))
            }
        }
        var pieces: [(start: Int, values: [Value])] = []
        var doneCount = 0
        for await result in group {
            pieces.append(result)
            doneCount += result.values.count
            progress(doneCount)
        }
        return pieces.sorted { $0.start < $1.start }.flatMap(\.values)
    }
}
