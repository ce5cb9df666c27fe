internal import BLESecChannelCore
internal import BLESecTLSEngine

/// A channel's TLS engine: a plaintext is a type and a payload. Sealing copies the payload into a
/// buffer, in which the record is then opened.
final class TLSEngineLayer: EngineLayer {
    /// The size in bytes of the length field before each record of blesec/1 in TLS's application
    /// data.
    static let lengthSize = 2

    let name = "TLSEngine"
    private let devices: TLSDevices
    private var sender: TLSEngine
    private var receiver: TLSEngine
    /// Unused memory: while it is allocated, the next buffers get other addresses.
    private var gap: [UInt8] = []
    private var wire = RecordBuffer(capacity: 2 * EngineScenario.bufferSize)
    private let payload = [UInt8](repeating: 0, count: EngineScenario.bufferSize)

    init(_ devices: TLSDevices) throws {
        self.devices = devices
        let sides = try TLSHandshakes.finishedSides(devices)
        sender = try sides.dialer.takeEngine()
        receiver = try sides.acceptor.takeEngine()
    }

    func moveBuffers(by gap: Int) throws {
        self.gap = [UInt8](repeating: 0, count: gap)
        let sides = try TLSHandshakes.finishedSides(devices)
        sender = try sides.dialer.takeEngine()
        receiver = try sides.acceptor.takeEngine()
        wire = RecordBuffer(capacity: 2 * EngineScenario.bufferSize)
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let payload = payload
        let span = payload.span.extracting(first: count - 1)
        try Self.run(&sender, &receiver, &wire, span, repetitions)
    }
}
