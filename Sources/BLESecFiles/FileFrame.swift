internal import BLESecDelivery

/// What the two ends of a stream of files send each other; `docs/wire-format.md`, "Files".
enum FileFrame: Sendable, Equatable {
    // From the sender.
    case offer(Offer)
    case file(FileEntry)
    /// A folder of a tree, before the files in it.
    case folder(String)
    /// Bytes of the current file, which is the first announced file that has not ended.
    case data([UInt8])
    /// The hash of the sender's bytes before the offset in `from`, for comparison with the bytes
    /// that the receiver holds.
    case prefix([UInt8])
    /// The hash of the whole file.
    case end([UInt8])
    /// The data of the current file begins anew, at 0.
    case again
    /// The current file cannot be sent.
    case skip(FileProblem)

    // From the receiver.
    case accept
    case refuse(FileProblem, String)
    /// The answer to `file`: this many bytes of the file are held.
    case from(UInt64)
    /// The answer to `file`: the file is stored already.
    case have
    /// For the file with this number, counted from 0: the hash of the bytes that the receiver holds
    /// equals the hash in `prefix`.
    case agreed(UInt64)
    /// For the file with this number, counted from 0: the hash of the bytes that the receiver holds
    /// differs from the hash in `prefix`, so the data must begin anew.
    case restart(UInt64)
    /// How many bytes, in all files together, the receiver has: they were written in this transfer,
    /// or were held or stored before it.
    case received(UInt64)
    /// The file with the number `index` has failed. If `index` equals the number of offered files,
    /// a folder or the tree itself has failed.
    case failed(index: UInt64, FileProblem)
    /// This many files have ended, and are durable unless they have failed.
    case stored(UInt64)
    /// Everything is stored under this final name.
    case done(String)

    struct Offer: Sendable, Equatable {
        /// The same whenever the same file or folder is offered again. The id of a file also
        /// depends on the file's size and time.
        var id: [UInt8]
        /// Different whenever a name, a size, a time or a mode in the offer has changed.
        var version: [UInt8]
        var isFolder: Bool
        /// How many files are offered.
        var files: UInt64
        /// How many bytes these files have in all.
        var bytes: UInt64
        var name: String
    }

    /// The label of a stream of files.
    static let label = "blesec-files/1"
    static let idLength = 16
    static let hashLength = 32
    /// The most bytes in the body of a frame.
    static let longestBody = 65_536
    /// The most bytes of a file in one frame.
    static let longestData = 65_536
    /// The most announced files that have not ended, the current one included.
    static let mostAnnounced = 256
    /// The greatest size of a file or an offer in bytes, and the greatest time in seconds since
    /// 1970.
    static let greatestSizeOrTime = (UInt64(1) << 61) - 1
}

/// A file as its sender announces it.
struct FileEntry: Sendable, Equatable {
    /// The path in the tree, with `/` between its parts; the offer's name if there is no tree.
    var path: String
    var size: UInt64
    /// The time of the last modification: seconds since 1970, and nanoseconds.
    var seconds: UInt64
    var nanoseconds: UInt64
    var isExecutable: Bool
}

/// Why a file, or a whole offer, is not taken or not sent.
public enum FileProblem: UInt8, Sendable, Hashable, CaseIterable {
    /// The receiver does not want the file or the offer.
    case declined = 1
    /// The name or a path is not allowed.
    case badName = 2
    /// The receiver has too little space, or its quota for this peer is used up.
    case noSpace = 3
    /// The receiver cannot write there.
    case cannotWrite = 4
    /// The file is being received already.
    case isActive = 5
    /// The file was changed while it was sent.
    case changed = 6
    /// The sender cannot read the file.
    case cannotRead = 7
    /// The bytes that arrived are not those that the sender read.
    case wrongHash = 8
    /// Something else.
    case other = 9
}

/// How a peer broke the rules for a stream of files (`docs/wire-format.md`, "Files").
struct FileViolation: Error, Equatable {
    var what: String
    init(_ what: String) { self.what = what }
}

extension FileFrame {
    enum Kind: UInt8, Sendable, CaseIterable {
        case offer = 0x01
        case file, folder, data, prefix, end, again, skip
        case accept = 0x11
        case refuse, from, have, agreed, restart, received, failed, stored, done
    }

    var kind: Kind {
        switch self {
        case .offer: .offer
        case .file: .file
        case .folder: .folder
        case .data: .data
        case .prefix: .prefix
        case .end: .end
        case .again: .again
        case .skip: .skip
        case .accept: .accept
        case .refuse: .refuse
        case .from: .from
        case .have: .have
        case .agreed: .agreed
        case .restart: .restart
        case .received: .received
        case .failed: .failed
        case .stored: .stored
        case .done: .done
        }
    }

    /// Appends the frame: its type, the length of its body, and the body.
    func append(to bytes: inout [UInt8]) {
        if case .data(let data) = self {
            // The type has 1 byte, and the length has at most 8.
            bytes.reserveCapacity(bytes.count + data.count + 9)
            Self.appendHeader(.data, data.count, to: &bytes)
            bytes += data
            return
        }
        var body: [UInt8] = []
        switch self {
        case .offer(let offer):
            body += offer.id
            body += offer.version
            body.append(number: offer.isFolder ? 1 : 0)
            body.append(number: offer.files)
            body.append(number: offer.bytes)
            body += offer.name.utf8
        case .file(let entry):
            body.append(number: entry.size)
            body.append(number: entry.seconds)
            body.append(number: entry.nanoseconds)
            body.append(number: entry.isExecutable ? 1 : 0)
            body += entry.path.utf8
        case .folder(let path): body += path.utf8
        case .data(let bytes), .prefix(let bytes), .end(let bytes): body += bytes
        case .skip(let problem): body.append(number: UInt64(problem.rawValue))
        case .refuse(let problem, let text):
            body.append(number: UInt64(problem.rawValue))
            body += FileName.shortened(text, toBytes: 1_024).utf8
        case .from(let number), .received(let number), .stored(let number), .agreed(let number),
            .restart(let number):
            body.append(number: number)
        case .failed(let index, let problem):
            body.append(number: index)
            body.append(number: UInt64(problem.rawValue))
        case .done(let name): body += name.utf8
        case .again, .accept, .have: break
        }
        Self.appendHeader(kind, body.count, to: &bytes)
        bytes += body
    }

    static func appendHeader(_ kind: Kind, _ count: Int, to bytes: inout [UInt8]) {
        bytes.append(kind.rawValue)
        bytes.append(number: UInt64(count))
    }

    fileprivate init(_ kind: Kind, _ body: Span<UInt8>) throws(FileViolation) {
        do throws(DeliveryError) {
            var position = 0
            self = try Self.read(kind, body, &position)
            guard position == body.count else {
                throw .violation("a file frame with bytes left over")
            }
        } catch {
            guard case .violation(let what) = error else { throw FileViolation("\(error)") }
            throw FileViolation(what)
        }
    }

    private static func read(
        _ kind: Kind, _ body: Span<UInt8>, _ position: inout Int
    ) throws(DeliveryError) -> FileFrame {
        switch kind {
        case .offer:
            let id = try bytes(idLength, body, &position)
            let version = try bytes(idLength, body, &position)
            let isFolder = try flag(body, &position)
            let files = try body.number(at: &position)
            let bytes = try body.number(at: &position)
            return .offer(
                Offer(
                    id: id, version: version, isFolder: isFolder, files: files, bytes: bytes,
                    name: try text(body, &position)))
        case .file:
            let size = try body.number(at: &position)
            let seconds = try body.number(at: &position)
            let nanoseconds = try body.number(at: &position)
            guard nanoseconds < 1_000_000_000 else { throw .violation("a time out of range") }
            let isExecutable = try flag(body, &position)
            return .file(
                FileEntry(
                    path: try text(body, &position), size: size, seconds: seconds,
                    nanoseconds: nanoseconds, isExecutable: isExecutable))
        case .folder: return .folder(try text(body, &position))
        case .data:
            guard body.count > 0 else { throw .violation("a data frame without data") }
            return .data(try bytes(body.count, body, &position))
        case .prefix: return .prefix(try bytes(hashLength, body, &position))
        case .end: return .end(try bytes(hashLength, body, &position))
        case .again: return .again
        case .skip: return .skip(try problem(body, &position))
        case .accept: return .accept
        case .refuse:
            let problem = try problem(body, &position)
            return .refuse(problem, try text(body, &position))
        case .from: return .from(try body.number(at: &position))
        case .have: return .have
        case .agreed: return .agreed(try body.number(at: &position))
        case .restart: return .restart(try body.number(at: &position))
        case .received: return .received(try body.number(at: &position))
        case .failed:
            let index = try body.number(at: &position)
            return .failed(index: index, try problem(body, &position))
        case .stored: return .stored(try body.number(at: &position))
        case .done: return .done(try text(body, &position))
        }
    }

    private static func bytes(
        _ count: Int, _ body: Span<UInt8>, _ position: inout Int
    ) throws(DeliveryError) -> [UInt8] {
        guard body.count - position >= count else {
            throw .violation("a file frame that is too short")
        }
        defer { position += count }
        let part = body.extracting(position..<position + count)
        return unsafe part.withUnsafeBufferPointer { unsafe Array($0) }
    }

    private static func flag(
        _ body: Span<UInt8>, _ position: inout Int
    ) throws(DeliveryError) -> Bool {
        switch try body.number(at: &position) {
        case 0: false
        case 1: true
        default: throw .violation("an unknown kind or mode of a file")
        }
    }

    private static func text(
        _ body: Span<UInt8>, _ position: inout Int
    ) throws(DeliveryError) -> String {
        let bytes = try bytes(body.count - position, body, &position)
        // A name that is not UTF-8 is no violation. It becomes the empty name, which is not
        // allowed.
        return String(validating: bytes, as: UTF8.self) ?? ""
    }

    private static func problem(
        _ body: Span<UInt8>, _ position: inout Int
    ) throws(DeliveryError) -> FileProblem {
        let number = try body.number(at: &position)
        return UInt8(exactly: number).flatMap(FileProblem.init(rawValue:)) ?? .other
    }
}

/// Reads frames from bytes that arrive in pieces of any size.
struct FileFrameReader: Sendable {
    private var kept: [UInt8] = []
    /// How many bytes at the start of `kept` belong to frames that were returned.
    private var head = 0

    /// Whether bytes of an incomplete frame are kept.
    var isMidFrame: Bool { head < kept.count }

    mutating func append(_ bytes: [UInt8]) {
        if head == kept.count {
            kept = bytes
        } else {
            kept.removeFirst(head)
            kept += bytes
        }
        head = 0
    }

    /// The next frame; nil while it is incomplete. `isAllowed` gets the frame's type alone, so a
    /// frame that is not allowed is refused before the rest of it has arrived.
    mutating func next(
        where isAllowed: (FileFrame.Kind) -> Bool
    ) throws(FileViolation) -> FileFrame? {
        guard head < kept.count else { return nil }
        guard let kind = FileFrame.Kind(rawValue: kept[head]), isAllowed(kind) else {
            throw FileViolation("a frame of type \(kept[head]), which does not belong here")
        }
        guard kept.count - head >= 2 else { return nil }
        // The two highest bits of a number say whether it has 1, 2, 4 or 8 bytes.
        let lengthSize = 1 << Int(kept[head + 1] >> 6)
        guard kept.count - head >= 1 + lengthSize else { return nil }
        var position = head + 1
        let length: UInt64
        do throws(DeliveryError) {
            length = try kept.span.number(at: &position)
        } catch {
            throw FileViolation("the length of a frame in more bytes than necessary")
        }
        guard length <= UInt64(FileFrame.longestBody) else {
            throw FileViolation("a frame of \(length) bytes, which is too long")
        }
        guard kept.count - position >= Int(length) else { return nil }
        let frame = try FileFrame(kind, kept.span.extracting(position..<position + Int(length)))
        head = position + Int(length)
        return frame
    }
}
