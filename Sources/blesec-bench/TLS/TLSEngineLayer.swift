internal import BLESecChannelCore
internal import BLESecTLSEngine

/// TLS as the engine of a channel: a type and a payload, together the plaintext, go in, and lie in
/// the receive buffer at the end.
final class TLSEngineLayer: EngineLayer {
    /// The length before a record in the application data.
    static let lengthSize = 2

    let name = "TLSEngine"
    private var sender: TLSEngine
    private var receiver: TLSEngine
    private var wire = RecordBuffer(capacity: 2 * EngineScenario.bufferSize)
    private let payload = [UInt8](repeating: 0, count: EngineScenario.bufferSize)

    init(_ company: BenchCompany) throws {
        let sides = try TLSHandshakes.engines(company)
        sender = try sides.dialer.take()
        receiver = try sides.acceptor.take()
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let payload = payload
        let span = payload.span.extracting(first: count - 1)
        try Self.run(&sender, &receiver, &wire, span, repetitions)
    }
}
