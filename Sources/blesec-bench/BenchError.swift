internal import BLESec

/// Errors that the bench itself reports.
enum BenchError: Error {
    /// A result is wrong or missing. The text names what should have given the result, such as a
    /// library or the peer.
    case wrongResult(String)
    /// A measurement was not possible; the text names what failed.
    case failed(String)
    /// The peer's first bytes are not a ``LinkPreface``.
    case notABench
}

extension ChannelError {
    /// Translates an error during a measurement into the error to report.
    init(bench error: any Error) {
        switch error {
        case let error as ChannelError: self = error
        case let error as LinkError: self.init(link: error)
        case BenchError.notABench:
            self.init(
                .protocolViolation, "the peer is no bench: run `blesec-bench serve` at its end")
        case BenchError.wrongResult(let source):
            self.init(.protocolViolation, "wrong or missing result: \(source)")
        case BenchError.failed(let source): self.init(.internal, "\(source) failed")
        default: self.init(.internal, "\(error)")
        }
    }
}
