internal import BLESec
internal import BLESecLinks

/// One end of a measured channel: notes when messages arrive, and sends what it is told to. On the
/// loop's thread.
final class RadioEnd: @unchecked Sendable {
    // Sendable because its state is touched on the loop's thread only.

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

    /// Opens the channel, sends a message as soon as it may, and receives from then on.
    func open(andSend message: [UInt8]) {
        run { [self] in
            let channel = try await SecureChannel.open(
                over: link, role: role, configuration: configuration)
            self.channel = channel
            try await channel.send(message)
            while try await channel.receive() != nil {
                arrivals.append(link.loop.now.nanoseconds)
            }
        }
    }

    /// Sends a message so many times.
    func send(_ message: [UInt8], count: Int) {
        run { [self] in
            for _ in 0..<count { try await channel?.send(message) }
        }
    }

    /// When the message with that number came, the first being number one; nil before.
    func arrival(of number: Int) throws -> UInt64? {
        if let failure { throw failure }
        return number <= arrivals.count ? arrivals[number - 1] : nil
    }

    /// Ends whatever it is at.
    func cancel() {
        for task in tasks { task.cancel() }
    }

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
