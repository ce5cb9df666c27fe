import BLESecPrimitives
import Glibc
import TestSupport
import Testing

@testable import BLESecFiles

/// A sender and a receiver that are interrupted and replaced by new ones. The tests pass the bytes
/// between them without a connection.
@Suite("Files: chains of interrupted transfers")
struct FileChainTests {
    private static let firstSeed = RunSeed.value

    @Test("files and trees arrive, whatever interrupts them", arguments: 0..<60)
    func arrives(index: Int) throws {
        var chain = try FileChain(seed: Self.firstSeed + UInt64(index))
        try chain.run()
    }

    @Test(
        "a sender of random frames changes nothing outside the folder, and causes no trap",
        arguments: 0..<60)
    func hostileSender(index: Int) throws {
        var generator = SeededGenerator(seed: Self.firstSeed + UInt64(index))
        let scratch = TemporaryFolder()
        try scratch.write("outside", [1, 2, 3])
        try scratch.makeFolder("in")
        for _ in 0..<20 {
            let receiver = FileReceiver()
            var frames: [UInt8] = []
            for _ in 0..<generator.below(30) {
                HostileFrames.append(&frames, &generator)
            }
            if generator.below(3) == 0, !frames.isEmpty {
                frames[generator.below(frames.count)] ^= UInt8(1 << generator.below(8))
            }
            var rest = frames[...]
            do {
                while !rest.isEmpty {
                    let piece = Array(rest.prefix(1 + generator.below(4_000)))
                    rest = rest.dropFirst(piece.count)
                    _ = try receiver.receive(piece)
                    if receiver.hasOffer {
                        _ = receiver.accept(
                            into: try FileFolder(scratch.path("in"), from: [7], FileFolder.Rules()))
                    }
                    if generator.below(8) == 0 { _ = receiver.tick() }
                }
                _ = try receiver.finish()
            } catch is FileViolation {
                continue
            }
        }
        #expect(scratch.read("outside") == [1, 2, 3])
        #expect(scratch.names == ["in", "outside"])
        for name in scratch.names(in: "in") where name != FileName.partialFolder {
            #expect(FileName.isAllowed(name, allowsHidden: false), "\(name)")
        }
    }

    @Test(
        "a file that the receiver has, and that changes after it was offered again, is not reported as sent",
        arguments: [false, true])
    func changedSinceOffer(isFolder: Bool) throws {
        let scratch = TemporaryFolder()
        try scratch.makeFolder("in")
        try scratch.makeFolder("tree")
        try scratch.write("tree/a", [1, 2, 3])
        let path = scratch.path(isFolder ? "tree" : "tree/a")
        func transfer(beforeAnswer change: () throws -> Void) throws -> FileSender {
            let sender = FileSender(try FileSource(path, sendsHidden: false))
            let receiver = FileReceiver()
            for _ in 0..<100 {
                switch sender.next() {
                case .send(let bytes): try sender.receive(try receiver.receive(bytes))
                case .wait: try sender.receive(receiver.tick())
                case .finish:
                    try sender.receive(try receiver.finish())
                    return sender
                case .giveUp: return sender
                }
                guard receiver.hasOffer else { continue }
                try change()
                let folder = try FileFolder(scratch.path("in"), from: [7], FileFolder.Rules())
                try sender.receive(receiver.accept(into: folder))
            }
            throw FileFailure(.other, "the sender does not end")
        }
        // `forget` is not called, so the receiver keeps its note about what it has stored. This is
        // the state in which the sender has not learned that everything is stored.
        let first = try transfer {}
        #expect(first.state.name == (isFolder ? "tree" : "a"))
        let second = try transfer { try scratch.write("tree/a", [4, 5, 6, 7]) }
        #expect(second.state.hasGivenUp && second.state.name == nil)
        #expect(second.state.failures.listed.map(\.path) == ["a"])
        #expect(second.state.failures.listed.map(\.problem) == [.changed])
    }

    @Test("a receiver that answers with random frames causes no trap", arguments: 0..<60)
    func hostileReceiver(index: Int) throws {
        var generator = SeededGenerator(seed: Self.firstSeed + UInt64(index))
        let scratch = TemporaryFolder()
        try scratch.makeFolder("tree")
        for number in 0..<5 {
            try scratch.write("tree/\(number)", generator.bytes(generator.below(9_000)))
        }
        for _ in 0..<50 {
            let source = try FileSource(scratch.path("tree"), sendsHidden: false)
            let sender = FileSender(source)
            for _ in 0..<60 {
                _ = sender.next()
                var frames: [UInt8] = []
                HostileFrames.appendAnswer(&frames, &generator)
                do { try sender.receive(frames) } catch { break }
            }
        }
    }
}

/// Random frames, as a hostile peer that has the session's keys can send them.
private enum HostileFrames {
    private static let paths = [
        "a", "a/b", "b", "../x", "/etc/x", "a//b", "a/../b", ".hidden", "", "a/b/c", "t", "t/a",
        String(repeating: "n", count: 256), "x\u{202E}y", "line\nfeed", "..", ".", "a/.",
        ".blesec-partial", "a/.blesec-partial/x",
    ]
    private static let numbers: [UInt64] = [
        0, 1, 2, 100, 4_096, 65_536, 1 << 32, 1 << 60, (1 << 61) - 1, 1 << 61,
        FileFrame.greatestSizeOrTime,
    ]

    static func append(_ bytes: inout [UInt8], _ generator: inout SeededGenerator) {
        frame(&generator).append(to: &bytes)
    }

    private static func frame(_ generator: inout SeededGenerator) -> FileFrame {
        let path = paths[generator.below(generator.below(2) == 0 ? 3 : paths.count)]
        let number = numbers[generator.below(generator.below(2) == 0 ? 4 : numbers.count)]
        let data = generator.bytes(1 + generator.below(200))
        let hash = generator.below(2) == 0 ? sha256([]) : generator.bytes(32)
        switch generator.below(14) {
        case 0, 1:
            return .offer(
                FileFrame.Offer(
                    id: [UInt8](repeating: UInt8(generator.below(2)), count: 16),
                    version: [UInt8](repeating: UInt8(generator.below(2)), count: 16),
                    isFolder: generator.below(3) > 0, files: UInt64(1 + generator.below(3)),
                    bytes: number, name: path))
        case 2, 3, 4:
            return .file(
                FileEntry(
                    path: path, size: number, seconds: number,
                    nanoseconds: UInt64(generator.below(1_000_000_000)),
                    isExecutable: generator.below(2) == 0))
        case 5: return .folder(path)
        case 6, 7, 8: return .data(data)
        case 9: return .prefix(hash)
        case 10, 11: return .end(hash)
        case 12: return .again
        default: return .skip(.changed)
        }
    }

    static func appendAnswer(_ bytes: inout [UInt8], _ generator: inout SeededGenerator) {
        let number = numbers[generator.below(numbers.count)]
        let frame: FileFrame =
            switch generator.below(24) {
            case 0...6: .accept
            case 7...11: .from(generator.below(2) == 0 ? 0 : number)
            case 12...14: .have
            case 15: .agreed(UInt64(generator.below(3)))
            case 16: .restart(UInt64(generator.below(3)))
            case 17, 18: .received(number)
            case 19: .failed(index: number, .noSpace)
            case 20, 21: .stored(UInt64(generator.below(6)))
            case 22: .done("x")
            default: .refuse(.declined, "no")
            }
        frame.append(to: &bytes)
    }
}

/// One file or tree that is sent again and again until it has arrived.
private struct FileChain {
    private var generator: SeededGenerator
    private let scratch = TemporaryFolder()
    private let isFolder: Bool
    /// How often the tree was changed.
    private var changeCount = 0

    init(seed: UInt64) throws {
        generator = SeededGenerator(seed: seed)
        isFolder = generator.below(2) == 0
        try scratch.makeFolder("in")
        try makeSource()
    }

    private mutating func makeSource() throws {
        guard isFolder else { return try scratch.write("source", content()) }
        try scratch.makeFolder("source")
        for number in 0..<1 + generator.below(12) {
            let folder = ["", "a/", "a/b/", "c/"][generator.below(4)]
            try scratch.makeFolder("source/" + folder)
            try scratch.write("source/\(folder)\(number).txt", content())
        }
    }

    private mutating func content() -> [UInt8] {
        generator.bytes([0, 1, 100, 70_000, 700_000][generator.below(5)])
    }

    mutating func run() throws {
        for attempt in 0..<12 {
            let isLast = attempt == 11
            let isDone = try transfer(until: isLast ? nil : generator.below(900_000))
            if isDone { break }
            #expect(!isLast, "the file or tree has not arrived")
            try disturb()
        }
        let name = try #require(scratch.names(in: "in").last { $0 != FileName.partialFolder })
        try compare("source", "in/\(name)")
    }

    /// Called between two attempts. Changes a partial file, or the source, or nothing.
    private mutating func disturb() throws {
        let partials = scratch.files(below: "in/.blesec-partial").filter { $0.contains("/f-") }
        switch generator.below(5) {
        case 0:
            // A byte of a partial file changes.
            guard let path = partials.first, var bytes = scratch.read(path), !bytes.isEmpty else {
                return
            }
            bytes[generator.below(bytes.count)] ^= 1
            try scratch.write(path, bytes)
        case 1:
            // A partial file is cut off.
            guard let path = partials.last, let bytes = scratch.read(path) else { return }
            try scratch.write(path, Array(bytes.prefix(generator.below(bytes.count + 1))))
        case 2 where isFolder:
            let number = generator.below(3)
            try changeTree("source/new \(number)")
        default: break
        }
    }

    /// Writes a file of the tree, and gives it a time of modification that no other file has. The
    /// system's clock for these times is coarse, so it could give the same time to two contents of
    /// the same length.
    private mutating func changeTree(_ path: String) throws {
        try scratch.write(path, content())
        changeCount += 1
        // One nanosecond, since the receiver may take a time of whole seconds for a rounded time.
        let time = timespec(tv_sec: 1_000_000_000 + changeCount, tv_nsec: 1)
        let result = unsafe utimensat(AT_FDCWD, scratch.path(path), [time, time], 0)
        #expect(result == 0)
    }

    /// Sends until the transfer is complete or `limit` bytes have moved. Returns whether it is
    /// complete.
    private mutating func transfer(until limit: Int?) throws -> Bool {
        let sender = FileSender(try FileSource(scratch.path("source"), sendsHidden: false))
        let receiver = FileReceiver()
        var toReceiver: [UInt8] = []
        var toSender: [UInt8] = []
        var moved = 0
        var hasFinished = false
        // The number of rounds since bytes last moved.
        var idleRounds = 0
        while true {
            idleRounds += 1
            guard idleRounds <= 10_000 else {
                throw FileFailure(.other, "nothing has moved for 10,000 rounds")
            }
            if !hasFinished, toReceiver.count < 600_000, generator.below(2) == 0 {
                switch sender.next() {
                case .send(let bytes): toReceiver += bytes
                case .wait: break
                case .finish: hasFinished = true
                case .giveUp: throw FileFailure(.changed, "the sender gave up an unchanged source")
                }
            }
            let piece = Array(toReceiver.prefix(1 + generator.below(200_000)))
            toReceiver.removeFirst(piece.count)
            moved += piece.count
            if !piece.isEmpty {
                idleRounds = 0
                toSender += try receiver.receive(piece)
            }
            if receiver.hasOffer {
                toSender += receiver.accept(
                    into: try FileFolder(scratch.path("in"), from: [7], FileFolder.Rules()))
            }
            if generator.below(4) == 0 { toSender += receiver.tick() }
            if let limit, moved >= limit { return false }
            let answers = Array(toSender.prefix(1 + generator.below(50)))
            toSender.removeFirst(answers.count)
            if !answers.isEmpty {
                idleRounds = 0
                try sender.receive(answers)
            }
            guard hasFinished, toReceiver.isEmpty, toSender.isEmpty else { continue }
            if !receiver.isDone {
                toSender = try receiver.finish()
                #expect(!toSender.isEmpty, "\(receiver.state.failures) \(sender.state.failures)")
                if toSender.isEmpty { return false }
                continue
            }
            #expect(sender.state.name == receiver.state.name)
            #expect(sender.state.failures.count + receiver.state.failures.count == 0)
            #expect(sender.state.received == sender.totalBytes)
            if generator.below(2) == 0 { receiver.forget() }
            return true
        }
    }

    private func compare(_ source: String, _ copy: String) throws {
        guard isFolder else {
            #expect(scratch.read(source) == scratch.read(copy))
            return
        }
        let expected = scratch.files(below: source).map { String($0.dropFirst(source.count)) }
        #expect(expected == scratch.files(below: copy).map { String($0.dropFirst(copy.count)) })
        for path in expected {
            #expect(scratch.read(source + path) == scratch.read(copy + path), "\(path)")
        }
    }
}
