internal import BLESecChannelCore
internal import BLESecTLSEngine

/// Handshakes that each resume the session of the previous handshake, and get the ticket for the
/// next.
///
/// The handshakes run one after another, since a ticket is valid for one resumption.
final class TLSResumptions: HandshakeSubject {
    let name = TLSContext.protocolName + " resumed"
    let reference: (any HandshakeReference)? = nil
    private let contexts: BothSides<TLSContext>

    /// Runs a full handshake, whose session the first measured handshake resumes.
    init(_ devices: TLSDevices) throws {
        func context(_ role: ChannelRole) throws -> TLSContext {
            var options = TLSOptions()
            options.resumes = true
            let original = devices.context(role)
            return try TLSContext(
                identity: original.identity, authorities: original.authorities, options: options)
        }
        contexts = try BothSides(dialer: context(.dialer), acceptor: context(.acceptor))
        _ = try TLSHandshakes.run(1, contexts)
    }

    func run(_ count: Int) throws -> HandshakeSample {
        var all = HandshakeSample()
        for _ in 0..<count {
            let one = try TLSHandshakes.run(1, contexts)
            all.time.dialer += one.time.dialer
            all.time.acceptor += one.time.acceptor
            (all.flights, all.bytes) = (one.flights, one.bytes)
        }
        return all
    }
}
