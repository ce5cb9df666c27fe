/// The first 100 failures of a transfer, and the number of all.
struct FailureList: Sendable, Equatable {
    private(set) var listed: [FileTransfer.Failure] = []
    private(set) var count = 0
    private static let most = 100

    mutating func append(_ failure: FileTransfer.Failure) {
        count += 1
        if listed.count < Self.most { listed.append(failure) }
    }
}
