/// Which channel each message came over that a connection has given to its program, until the
/// program has confirmed it.
struct Receipts {
    /// Messages that came over one channel in a row.
    private struct Run {
        let channel: SecureChannel
        /// The number of the last one on the connection, and on its channel.
        var last: UInt64
        var lastOnChannel: UInt64
    }

    private var runs: [Run] = []
    /// How many messages there were.
    private(set) var count: UInt64 = 0

    /// Takes note of the next message, the channel's `number`th.
    mutating func add(_ channel: SecureChannel, _ number: UInt64) {
        count += 1
        guard channel.configuration.acknowledgement == .manual else { return }
        if let run = runs.last, run.channel === channel {
            runs[runs.count - 1].last = count
            runs[runs.count - 1].lastOnChannel = number
        } else {
            runs.append(Run(channel: channel, last: count, lastOnChannel: number))
        }
    }

    /// The channel is over, and nothing of it can be confirmed any more.
    mutating func forget(_ channel: SecureChannel) { runs.removeAll { $0.channel === channel } }

    /// What to confirm on each channel for the messages up to `number`.
    mutating func take(through number: UInt64) -> [(SecureChannel, UInt64)] {
        var confirmed: [(SecureChannel, UInt64)] = []
        while let run = runs.first, number > 0 {
            guard run.last > number else {
                confirmed.append((run.channel, run.lastOnChannel))
                runs.removeFirst()
                continue
            }
            let left = run.last - number
            if left < run.lastOnChannel {
                confirmed.append((run.channel, run.lastOnChannel - left))
            }
            break
        }
        return confirmed
    }
}
