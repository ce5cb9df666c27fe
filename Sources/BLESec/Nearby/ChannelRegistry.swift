internal import BLESecChannelCore
internal import BLESecDiscovery

/// The channels of a service that are not over, and those that wait for the program.
///
/// Of two channels to one peer one stays. All channels run on the service's loop, on which the
/// registry is used.
struct ChannelRegistry {
    /// How many channels may wait to be taken; at this limit no more are accepted.
    private static let backlog = 16

    /// A channel that is not over.
    struct Entry {
        let channel: SecureChannel
        let address: DeviceAddress
        let peer: PeerIdentity
        let history: ChannelHistory
        /// Whether the channel is being ended in favour of another channel to the same peer.
        fileprivate var isDuplicate = false

        /// Makes an entry for a channel that has become ready just now.
        init(_ channel: SecureChannel, to address: DeviceAddress) async {
            self.channel = channel
            self.address = address
            peer = await channel.peer
            history = await ChannelHistory(of: channel, readyAt: channel.loop.now)
        }

        fileprivate func isDuplicate(of other: Entry) -> Bool {
            !isDuplicate && peer.fingerprint != nil && peer == other.peer
                && !channel.assumeIsolated { $0.isOver }
        }
    }

    /// What to do with a new channel.
    enum Admission {
        /// It is the only channel to its peer.
        case only
        /// It stays, and the older channel ends.
        case ends(older: SecureChannel)
        /// The older channel stays, and this one ends.
        case isEnded
    }

    private var entries: [ObjectIdentifier: Entry] = [:]
    /// The channels that wait to be taken, the oldest first.
    private(set) var waiting: [SecureChannel] = []

    /// Whether all channels are over and removed.
    var isEmpty: Bool { entries.isEmpty }

    /// Whether another channel may wait to be taken.
    var hasRoom: Bool { waiting.count < Self.backlog }

    /// The channels that are over, and were not removed yet.
    var over: [SecureChannel] {
        entries.values.map(\.channel).filter { $0.assumeIsolated { $0.isOver } }
    }

    /// Whether a channel uses the link to an address.
    func uses(_ address: DeviceAddress) -> Bool {
        entries.values.contains { $0.address == address }
    }

    /// Adds a channel, and decides which one stays if there is another to the same peer.
    mutating func admit(_ fresh: Entry) -> Admission {
        let key = ObjectIdentifier(fresh.channel)
        let older = entries.first { $0.value.isDuplicate(of: fresh) }
        entries[key] = fresh
        guard let older else { return .only }
        guard fresh.history.stays(insteadOf: older.value.history) else {
            entries[key]?.isDuplicate = true
            return .isEnded
        }
        entries[older.key]?.isDuplicate = true
        return .ends(older: older.value.channel)
    }

    /// Removes a channel that is over. If it waits to be taken and has unread messages, it
    /// continues to wait.
    mutating func remove(_ channel: SecureChannel) -> Entry? {
        guard let entry = entries.removeValue(forKey: ObjectIdentifier(channel)) else { return nil }
        if !channel.assumeIsolated({ $0.hasUnread }) { waiting.removeAll { $0 === channel } }
        return entry
    }

    /// Lets a channel wait to be taken.
    mutating func offer(_ channel: SecureChannel) { waiting.append(channel) }

    /// Takes the channel that has waited longest.
    mutating func take() -> SecureChannel { waiting.removeFirst() }

    /// Takes all channels that wait.
    mutating func takeAll() -> [SecureChannel] {
        defer { waiting = [] }
        return waiting
    }
}
