/// Records which channel brought each message that a program has received and not confirmed.
struct Receipts {
    /// Messages from one channel that are consecutive on the connection too.
    private struct Run {
        let channel: SecureChannel
        /// The run's first message, as numbered from 1 on the connection.
        let first: UInt64
        /// The run's last message, as numbered from 1 on the connection.
        var last: UInt64
        /// The run's last message, as numbered from 1 on its channel.
        var lastOnChannel: UInt64
    }

    private var runs: [Run] = []
    /// How many messages the program has received, over all channels.
    private(set) var count: UInt64 = 0

    /// Records the next message, which has `number` on its channel.
    mutating func add(_ channel: SecureChannel, _ number: UInt64) {
        count += 1
        guard channel.configuration.acknowledgement == .manual else { return }
        // Messages of other channels may lie between two messages of this channel.
        if let run = runs.last, run.channel === channel, run.last == count - 1 {
            runs[runs.count - 1].last = count
            runs[runs.count - 1].lastOnChannel = number
        } else {
            runs.append(Run(channel: channel, first: count, last: count, lastOnChannel: number))
        }
    }

    /// Removes a channel that is over; its messages can no longer be confirmed.
    mutating func forget(_ channel: SecureChannel) { runs.removeAll { $0.channel === channel } }

    /// Returns how to confirm the messages 1 to `number` of the connection: the channels, each with
    /// its last message to confirm, as numbered on that channel. Removes the runs that end at or
    /// before `number`.
    mutating func take(through number: UInt64) -> [(channel: SecureChannel, last: UInt64)] {
        var confirmed: [(channel: SecureChannel, last: UInt64)] = []
        while let run = runs.first, number > 0 {
            guard run.last > number else {
                confirmed.append((run.channel, run.lastOnChannel))
                runs.removeFirst()
                continue
            }
            if number >= run.first {
                confirmed.append((run.channel, run.lastOnChannel - (run.last - number)))
            }
            break
        }
        return confirmed
    }
}
