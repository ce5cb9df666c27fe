internal import BLESecChannelCore
internal import BLESecDelivery

// The types of the records of delivery (`docs/wire-format.md`, "Records").
extension DeliveryRecord.Kind {
    /// The kind with this type; nil for a type of the channel itself.
    init?(_ type: RecordType) {
        switch type {
        case .resume: self = .resume
        case .chunk: self = .chunk
        case .confirm: self = .confirm
        case .epoch: self = .epoch
        case .credit: self = .credit
        default: return nil
        }
    }
}

extension RecordType {
    init(_ kind: DeliveryRecord.Kind) {
        switch kind {
        case .resume: self = .resume
        case .chunk: self = .chunk
        case .confirm: self = .confirm
        case .epoch: self = .epoch
        case .credit: self = .credit
        }
    }
}

extension ChannelError {
    init(_ error: DeliveryError) {
        switch error {
        case .violation(let what): self = .violation(what)
        case .tooLong(let length):
            self.init(
                .limitExceeded,
                "the peer announces a message of \(length) bytes, which is longer than this side "
                    + "allows")
        }
    }
}
