internal import BLESec

/// What the bench itself finds wrong.
enum BenchError: Error {
    /// Bytes came back other than they went; the text says from where.
    case wrongResult(String)
    /// The peer does not begin as a bench does.
    case notABench
}

extension ChannelError {
    /// Whatever went wrong while measuring.
    init(bench error: any Error) {
        switch error {
        case let error as ChannelError: self = error
        case let error as LinkError: self.init(link: error)
        case BenchError.notABench:
            self.init(
                .protocolViolation, "the peer is no bench: run `blesec-bench serve` at its end")
        case BenchError.wrongResult(let source):
            self.init(.protocolViolation, "\(source) gave back other bytes than it was given")
        default: self.init(.internal, "\(error)")
        }
    }
}
