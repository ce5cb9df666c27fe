/// The observers of adapters' states.
struct AdapterObservers {
    private struct Observer {
        let adapter: AdapterName
        let continuation: AsyncStream<AdapterState>.Continuation
        var last: AdapterState
    }

    private var observers: [Observer] = []

    /// Adds an observer of an adapter, which gets the present state at once.
    mutating func add(_ adapter: AdapterName, _ state: AdapterState) -> AsyncStream<AdapterState> {
        let (stream, continuation) = AsyncStream<AdapterState>.makeStream(
            bufferingPolicy: .bufferingNewest(1))
        observers.append(Observer(adapter: adapter, continuation: continuation, last: state))
        continuation.yield(state)
        return stream
    }

    /// Tells each observer the state of its adapter if it differs from the last one.
    mutating func tell(_ state: (AdapterName) -> AdapterState) {
        for index in observers.indices.reversed() {
            let state = state(observers[index].adapter)
            guard state != observers[index].last else { continue }
            observers[index].last = state
            if case .terminated = observers[index].continuation.yield(state) {
                observers.remove(at: index)
            }
        }
    }

    /// Ends all observations.
    mutating func finish() {
        for observer in observers { observer.continuation.finish() }
        observers = []
    }
}
