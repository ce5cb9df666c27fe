internal import BLESecChannelCore
internal import BLESecDiscovery

/// The channels of a service, until they are over and removed.
///
/// Of two channels to one peer, one stays. The registry is used only on the service's loop, where
/// all its channels run.
struct ChannelRegistry {
    struct Entry {
        let channel: SecureChannel
        let address: DeviceAddress
        let peer: PeerIdentity
        let history: ChannelHistory
        /// Whether the channel is being ended in favour of another channel to the same peer.
        fileprivate(set) var isSuperseded = false

        /// For a channel that is ready.
        init(_ channel: SecureChannel, to address: DeviceAddress) async {
            self.channel = channel
            self.address = address
            peer = await channel.peer
            history = await ChannelHistory(of: channel)
        }

        /// Whether one of two channels has to end: this entry's, which is in the registry, or
        /// `other`'s, which is new.
        fileprivate func competes(with other: Entry) -> Bool {
            !isSuperseded && peer.fingerprint != nil && peer == other.peer
                && !channel.assumeIsolated { $0.isOver }
        }
    }

    /// What to do with a new channel.
    enum Admission {
        /// The new channel stays, and no other channel has to end for it.
        case only
        /// The new channel stays, and the older one ends.
        case ends(older: SecureChannel)
        /// The older channel stays, and the new one ends.
        case endsNew
    }

    private var entries: [ObjectIdentifier: Entry] = [:]

    /// Whether all channels are over and removed.
    var isEmpty: Bool { entries.isEmpty }

    /// The channels that are over, and were not removed yet.
    var endedChannels: [SecureChannel] {
        entries.values.map(\.channel).filter { $0.assumeIsolated { $0.isOver } }
    }

    /// The channels that this side is closing, and that are not over.
    var closingChannels: [SecureChannel] {
        entries.values.map(\.channel).filter { $0.assumeIsolated { $0.isClosing && !$0.isOver } }
    }

    /// Whether a channel in the registry uses the link to an address.
    func uses(_ address: DeviceAddress) -> Bool {
        entries.values.contains { $0.address == address }
    }

    /// Adds a channel. If there is another channel to the same peer, decides which one stays.
    mutating func admit(_ fresh: Entry) -> Admission {
        let key = ObjectIdentifier(fresh.channel)
        let older = entries.first { $0.value.competes(with: fresh) }
        entries[key] = fresh
        guard let older else { return .only }
        guard fresh.history.stays(insteadOf: older.value.history) else {
            entries[key]?.isSuperseded = true
            return .endsNew
        }
        entries[older.key]?.isSuperseded = true
        return .ends(older: older.value.channel)
    }

    mutating func remove(_ channel: SecureChannel) -> Entry? {
        entries.removeValue(forKey: ObjectIdentifier(channel))
    }
}
