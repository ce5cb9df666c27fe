internal import BLESec
internal import BLESecLinks
internal import BLESecRadioModel

/// One end of a measured channel: it sends messages, and records when messages arrive.
final class RadioEnd: @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    private let link: RadioLink
    private let role: ChannelRole
    private let configuration: ChannelConfiguration
    private var channel: SecureChannel?
    private var arrivals: [UInt64] = []
    private var failure: (any Error)?
    private var tasks: [Task<Void, Never>] = []

    init(_ link: RadioLink, _ role: ChannelRole, _ configuration: ChannelConfiguration) {
        self.link = link
        self.role = role
        self.configuration = configuration
    }

    /// Opens the channel, sends a message as soon as the channel is ready, and receives from then
    /// on.
    func open(andSend message: [UInt8]) {
        run { [self] in
            let channel = try await SecureChannel.open(
                over: link, role: role, configuration: configuration)
            self.channel = channel
            try await channel.send(message)
            while try await channel.receive() != nil { arrivals.append(link.loop.now.nanoseconds) }
        }
    }

    /// Sends the message `count` times.
    func send(_ message: [UInt8], count: Int) {
        run { [self] in
            for _ in 0..<count { try await channel?.send(message) }
        }
    }

    /// The time in nanoseconds at which this end received the message `number`, where the first
    /// received message is number 1; nil if it has not arrived yet.
    func arrival(of number: Int) throws -> UInt64? {
        if let failure { throw failure }
        return number <= arrivals.count ? arrivals[number - 1] : nil
    }

    func cancel() { for task in tasks { task.cancel() } }

    private func run(_ body: @escaping @Sendable () async throws -> Void) {
        tasks.append(
            Task(executorPreference: link.loop) { [self] in
                do {
                    try await body()
                } catch {
                    if failure == nil { failure = error }
                }
            })
    }
}
