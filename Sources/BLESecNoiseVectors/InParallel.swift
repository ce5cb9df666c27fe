/// Calls `body` with 0 up to `count` on all cores; the results in that order.
///
/// - Parameters:
///   - count: how often.
///   - body: what is done; it should take about a millisecond.
///   - progress: hears now and then how many are done.
package func inParallel<Value: Sendable>(
    _ count: Int, _ body: @escaping @Sendable (Int) -> Value, progress: (Int) -> Void = { _ in }
) async -> [Value] {
    let piece = 32
    return await withTaskGroup(of: (start: Int, values: [Value]).self) { group in
        for start in stride(from: 0, to: count, by: piece) {
            // Not on the executor of whoever calls, which may be one thread.
            group.addTask(executorPreference: globalConcurrentExecutor) {
                (start, (start..<min(start + piece, count)).map(body))
            }
        }
        var pieces: [(start: Int, values: [Value])] = []
        var done = 0
        for await result in group {
            pieces.append(result)
            done += result.values.count
            progress(done)
        }
        return pieces.sorted { $0.start < $1.start }.flatMap(\.values)
    }
}
