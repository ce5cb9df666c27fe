internal import BLESecChannelCore
internal import BLESecTLSEngine

/// TLS as the engine of a channel: the plaintext, a type and a payload, is sealed, and opened
/// in the receive buffer.
final class TLSEngineLayer: EngineLayer {
    /// The bytes of the length field that precedes a record in TLS's application data.
    static let lengthSize = 2

    let name = "TLSEngine"
    private let company: BenchCompany
    private var sender: TLSEngine
    private var receiver: TLSEngine
    private var gap: [UInt8] = []
    private var wire = RecordBuffer(capacity: 2 * EngineScenario.bufferSize)
    private let payload = [UInt8](repeating: 0, count: EngineScenario.bufferSize)

    init(_ company: BenchCompany) throws {
        self.company = company
        let sides = try TLSHandshakes.engines(company)
        sender = try sides.dialer.take()
        receiver = try sides.acceptor.take()
    }

    func moveBuffers(by gap: Int) throws {
        self.gap = [UInt8](repeating: 0, count: gap)
        let sides = try TLSHandshakes.engines(company)
        sender = try sides.dialer.take()
        receiver = try sides.acceptor.take()
        wire = RecordBuffer(capacity: 2 * EngineScenario.bufferSize)
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let payload = payload
        let span = payload.span.extracting(first: count - 1)
        try Self.run(&sender, &receiver, &wire, span, repetitions)
    }
}
