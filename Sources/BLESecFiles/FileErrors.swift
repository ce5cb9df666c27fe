internal import BLESecChannelCore

extension ChannelError {
    init(_ failure: FileFailure) {
        self.init(failure.problem.code, failure.text)
    }

    /// The error for a file, folder or offer that the peer did not take.
    init(refused name: String, _ failure: FileTransfer.Failure) {
        self.init(failure.problem.code, "the peer does not take \(name): \(failure.reason)")
    }
}

extension FileProblem {
    var code: ChannelError.Code {
        switch self {
        case .declined, .badName: .refused
        case .noSpace: .noSpace
        case .cannotWrite: .cannotCreate
        case .isActive: .busy
        case .changed, .wrongHash: .fileChanged
        case .cannotRead: .noSuchFile
        case .other: .incomplete
        }
    }

    /// The problem in words.
    public var meaning: String {
        switch self {
        case .declined: "it is not wanted there"
        case .badName: "the name is not allowed there"
        case .noSpace: "there is too little space"
        case .cannotWrite: "it cannot be written there"
        case .isActive: "it is being received already"
        case .changed: "it was changed while it was sent; send it again"
        case .cannotRead: "it cannot be read"
        case .wrongHash: "other bytes arrived than were read; send it again"
        case .other: "it was not stored"
        }
    }
}
