/// The first 100 failures of a transfer, and the number of all its failures.
struct FailureList: Sendable, Equatable {
    private(set) var listed: [FileTransfer.Failure] = []
    private(set) var count = 0
    private static let mostListed = 100

    mutating func append(_ failure: FileTransfer.Failure) {
        count += 1
        if listed.count < Self.mostListed { listed.append(failure) }
    }
}
