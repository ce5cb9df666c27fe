import BLESecPrimitives
import Glibc
import Testing

@Suite struct SecretBytesTests {
    @Test("a new secret is all zeros, even in a slot that another secret has used")
    func zeroed() {
        for count in [0, 1, 31, 32, 33, 64, 100, 2048, 4097, 70_000] {
            do {
                var secret = SecretBytes(randomCount: count)
                var span = secret.mutableSpan
                for index in span.indices { span[index] = 0xA5 }
            }
            let secret = SecretBytes(count: count)
            expectEqual(secret, [UInt8](repeating: 0, count: count))
        }
    }

    @Test("a copy equals its original and nothing else")
    func equality() {
        let bytes: [UInt8] = [1, 2, 3]
        let secret = SecretBytes(copying: bytes.span)
        expectEqual(secret, bytes)
        expectNotEqual(secret, [1, 2, 4])
        expectNotEqual(secret, [1, 2])
        let spansAreEqual = constantTimeEqual(secret.span, bytes.span)
        let emptySpansAreEqual = constantTimeEqual(Span(), Span())
        #expect(spansAreEqual)
        #expect(emptySpansAreEqual)
    }

    @Test("a secret prints only as <redacted>")
    func redacted() {
        let description = SecretBytes(copying: [65, 66].span).description
        #expect(description == "<redacted>")
    }

    @Test("a wiped secret is all zeros")
    func wipe() {
        var secret = SecretBytes(randomCount: 48)
        secret.wipe()
        expectEqual(secret, [UInt8](repeating: 0, count: 48))
    }

    @Test("20,000 live secrets have separate bytes, and take fewer than 20 slabs")
    func many() {
        var holders: [Holder] = []
        for index in 0..<20_000 { holders.append(Holder(repeatedBytes(of: index))) }
        let areSeparate = holders.enumerated().allSatisfy { index, holder in
            equal(holder.secret, repeatedBytes(of: index))
        }
        #expect(areSeparate)
        // Ten slabs of 2,048 slots, and the slabs of other tests.
        #expect(SecretArena.slabCount(forSecretsOf: 32) < 20)
    }
}

/// The guarded memory that all secrets share.
@Suite struct SecretArenaTests {
    @Test("unused slabs are returned to the system, except one")
    func slabs() {
        // Twenty slabs of sixteen slots; a test that runs at the same time may need one or two
        // more.
        var holders: [LargeSecret] = (0..<320).map { _ in LargeSecret() }
        #expect((20...22).contains(SecretArena.slabCount(forSecretsOf: LargeSecret.size)))
        holders.removeLast(160)
        #expect((10...12).contains(SecretArena.slabCount(forSecretsOf: LargeSecret.size)))
        holders.removeAll()
        #expect((1...3).contains(SecretArena.slabCount(forSecretsOf: LargeSecret.size)))
    }

    @Test("a slab is locked, kept out of core dumps, and lies between inaccessible pages")
    func guarded() throws {
        let secret = SecretBytes(randomCount: 32)
        let address = unsafe secret.span.withUnsafeBufferPointer {
            UInt(bitPattern: $0.baseAddress)
        }
        let maps = try MemoryMap.all()
        let index = try #require(maps.firstIndex { $0.range.contains(address) })
        #expect(maps[index].permissions.hasPrefix("rw-"))
        #expect(maps[index].flags.contains("dd"), "without `dd`, core dumps contain the slab")
        if MemoryMap.canLock {
            #expect(maps[index].flags.contains("lo"), "without `lo`, the slab is not locked")
        }
        for neighbour in [maps[index - 1], maps[index + 1]] {
            #expect(neighbour.permissions.hasPrefix("---"))
            #expect(
                neighbour.range.upperBound == maps[index].range.lowerBound
                    || neighbour.range.lowerBound == maps[index].range.upperBound)
        }
    }

    @Test("eight tasks create and drop secrets concurrently, and none sees another task's bytes")
    func concurrency() async {
        let areSeparate = await withTaskGroup(of: Bool.self) { group in
            for task in 0..<8 {
                group.addTask {
                    (0..<200).allSatisfy { round in
                        let bytes = [UInt8](repeating: UInt8(task), count: 1 + (round * 37) % 600)
                        let copied = SecretBytes(copying: bytes.span)
                        let zeroed = SecretBytes(count: bytes.count)
                        return copied.isEqual(to: SecretBytes(copying: bytes.span))
                            && zeroed.span.indices.allSatisfy { zeroed.span[$0] == 0 }
                    }
                }
            }
            return await group.reduce(true) { $0 && $1 }
        }
        #expect(areSeparate)
    }
}

/// One mapping of this process, as listed in `/proc/self/smaps` (proc(5)).
private struct MemoryMap {
    let range: Range<UInt>
    let permissions: String
    var flags: Set<String> = []

    /// Whether the system lets this process lock 32 pages, which is more than a slab takes.
    static var canLock: Bool {
        let pageSize = 4_096
        let size = 32 * pageSize
        guard let pages = unsafe aligned_alloc(pageSize, size) else { return false }
        defer { unsafe free(pages) }
        return unsafe mlock(pages, size) == 0 && munlock(pages, size) == 0
    }

    static func all() throws -> [MemoryMap] {
        var text: [UInt8] = []
        let descriptor = unsafe open("/proc/self/smaps", O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        var piece = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = unsafe read(descriptor, &piece, piece.count)
            guard count > 0 else { break }
            text += piece[..<count]
        }
        var maps: [MemoryMap] = []
        for line in String(decoding: text, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            let bounds = words[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
            if bounds.count == 2, !words[0].hasSuffix(":") {
                maps.append(MemoryMap(range: bounds[0]..<bounds[1], permissions: String(words[1])))
            } else if words[0] == "VmFlags:" {
                maps[maps.count - 1].flags = Set(words.dropFirst().map(String.init))
            }
        }
        return maps
    }
}

/// A secret that takes a slot of 4 KiB. A slab has sixteen such slots.
private final class LargeSecret {
    static let size = 3_000
    let secret = SecretBytes(count: LargeSecret.size)
}

private func expectEqual(
    _ secret: borrowing SecretBytes, _ bytes: [UInt8],
    sourceLocation: SourceLocation = #_sourceLocation
) {
    let isEqual = equal(secret, bytes)
    #expect(isEqual, sourceLocation: sourceLocation)
}

private func expectNotEqual(
    _ secret: borrowing SecretBytes, _ bytes: [UInt8],
    sourceLocation: SourceLocation = #_sourceLocation
) {
    let isEqual = equal(secret, bytes)
    #expect(!isEqual, sourceLocation: sourceLocation)
}

private func equal(_ secret: borrowing SecretBytes, _ bytes: [UInt8]) -> Bool {
    secret.isEqual(to: SecretBytes(copying: bytes.span))
}

/// A class around a secret, since an array cannot contain noncopyable values.
private final class Holder {
    let secret: SecretBytes
    init(_ bytes: [UInt8]) { secret = SecretBytes(copying: bytes.span) }
}

/// 32 bytes: alternately the low and the high byte of a number of 16 bits.
private func repeatedBytes(of number: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 32)
    for index in stride(from: 1, to: 32, by: 2) {
        bytes[index] = UInt8(truncatingIfNeeded: number >> 8)
    }
    return bytes
}
