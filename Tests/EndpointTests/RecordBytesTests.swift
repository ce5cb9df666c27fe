import BLESecDelivery
import BLESecPrimitives
import Testing

/// The encoding of the records of delivery and streams.
struct RecordBytesTests {
    private static func record(
        _ kind: DeliveryRecord.Kind, using generator: inout SeededGenerator
    ) -> DeliveryRecord {
        func number() -> UInt64 {
            generator.next() >> UInt64.random(in: 2..<64, using: &generator)
        }
        func identifier() -> Identifier { Identifier(using: &generator) }
        switch kind {
        case .resume:
            return .resume(
                Resume(
                    token: identifier(), peerToken: .none, epoch: identifier(), first: number(),
                    peerEpoch: identifier(),
                    positions: Positions(
                        confirmed: number(), held: number(), offset: Int(number())),
                    credit: number(),
                    streams: StreamSummary(
                        window: number(), firstLimit: number(), peerToken: identifier(),
                        opened: number(),
                        limit: number(),
                        entries: (0..<Int.random(in: 0...5, using: &generator)).map { _ in
                            StreamSummary.Entry(
                                id: number(),
                                [.complete, .done, .receiving(count: number(), limit: number())]
                                    .randomElement(using: &generator) ?? .done)
                        })))
        case .chunk:
            let count = Int.random(in: 0...40, using: &generator)
            return .chunk(
                Chunk(
                    number: number(), offset: Int(number()), length: Int(number()),
                    bytes: (0..<count).map { UInt8($0) }))
        case .confirm: return .confirm(epoch: identifier(), through: number())
        case .epoch: return .epoch(identifier())
        case .credit: return .credit(number())
        case .finish: return .finish(number: number())
        case .open:
            let labels = ["", "a", "größer", String(repeating: "x", count: 255)]
            return .stream(
                .open(
                    id: number(),
                    FramePriority.allCases.randomElement(using: &generator) ?? .normal,
                    label: labels.randomElement(using: &generator) ?? ""))
        case .bytes:
            let count = Int.random(in: 0...40, using: &generator)
            return .stream(
                .bytes(id: number(), offset: number(), (0..<count).map { UInt8($0) }[...]))
        case .fin: return .stream(.fin(id: number(), size: number()))
        case .reset:
            return .stream(
                .reset(id: number(), code: UInt32.random(in: 0...(.max), using: &generator)))
        case .stop: return .stream(.stop(id: number(), code: 7))
        case .limit:
            return .stream(.limit(id: number(), received: number(), limit: number()))
        case .done: return .stream(.done(id: number()))
        case .streams: return .stream(.streams(limit: number()))
        }
    }

    @Test("a record is read as it was written", arguments: DeliveryRecord.Kind.allCases)
    func writtenAndRead(_ kind: DeliveryRecord.Kind) throws {
        var generator = SeededGenerator(seed: RunSeed.value)
        for _ in 0..<200 {
            let record = Self.record(kind, using: &generator)
            #expect(try DeliveryRecord(kind, record.bytes) == record)
        }
    }

    @Test("numbers as in RFC 9000's examples, an identifier and a chunk have the expected bytes")
    func known() throws {
        #expect(DeliveryRecord.credit(37).bytes == [0x25])
        #expect(DeliveryRecord.credit(15_293).bytes == [0x7B, 0xBD])
        #expect(DeliveryRecord.credit(494_878_333).bytes == [0x9D, 0x7F, 0x3E, 0x7D])
        #expect(
            DeliveryRecord.credit(151_288_809_941_952_652).bytes
                == [0xC2, 0x19, 0x7C, 0x5E, 0xFF, 0x14, 0xE8, 0x8C])
        let identifier = Identifier(high: 0x0102_0304_0506_0708, low: 0x090A_0B0C_0D0E_0F10)
        #expect(DeliveryRecord.epoch(identifier).bytes == Array(1...16))
        #expect(
            DeliveryRecord.chunk(Chunk(number: 1, offset: 64, length: 66, bytes: [7, 8])).bytes
                == [0x01, 0x40, 0x40, 0x40, 0x42, 7, 8])
    }

    @Test("records that are cut, are too long, or have a number in a longer form, are refused")
    func refused() {
        var generator = SeededGenerator(seed: RunSeed.value)
        for kind in DeliveryRecord.Kind.allCases {
            let bytes = Self.record(kind, using: &generator).bytes
            // A record that is cut in its data can be a valid record with less data. A record that
            // is shorter than its minimum length lacks a number.
            let minimumLengths: [DeliveryRecord.Kind: Int] = [.chunk: 3, .bytes: 2, .open: 2]
            let hasData = minimumLengths[kind] != nil
            let minimumLength = minimumLengths[kind] ?? bytes.count
            for count in 0..<minimumLength {
                #expect(throws: DeliveryError.self) {
                    try DeliveryRecord(kind, Array(bytes.prefix(count)))
                }
            }
            if !hasData {
                #expect(throws: DeliveryError.self) { try DeliveryRecord(kind, bytes + [0]) }
            }
        }
        // A priority that does not exist, a label that is not UTF-8, and a label of 256 bytes.
        for bytes in [[0, 3], [0, 1, 0xFF], [0, 1] + [UInt8](repeating: 0x61, count: 256)] {
            #expect(throws: DeliveryError.self) { try DeliveryRecord(.open, bytes) }
        }
        // A code of more than 32 bits.
        #expect(throws: DeliveryError.self) {
            try DeliveryRecord(.reset, [0, 0xC0, 0, 0, 1, 0, 0, 0, 0])
        }
        // 37 in two bytes, although one is enough.
        #expect(throws: DeliveryError.self) { try DeliveryRecord(.credit, [0x40, 0x25]) }
    }

    @Test("random bytes are refused, or read as a record that has the same bytes")
    func random() throws {
        var generator = SeededGenerator(seed: RunSeed.value)
        for _ in 0..<20_000 {
            let kind = DeliveryRecord.Kind.allCases.randomElement(using: &generator) ?? .chunk
            let count = Int.random(in: 0...100, using: &generator)
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
            guard let record = try? DeliveryRecord(kind, bytes) else { continue }
            #expect(record.bytes == bytes)
        }
    }
}
