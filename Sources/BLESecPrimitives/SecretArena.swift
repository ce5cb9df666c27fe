internal import BLESecLocking
internal import CBLESecSodium

/// The process's guarded memory: slots for secrets, cut out of slabs of `sodium_malloc`.
///
/// A guarded allocation of its own costs 15 µs, four memory maps and at least 8 KiB of locked
/// memory. A slab pays that once for many slots: it stands between inaccessible pages, is locked
/// into memory as far as the process's limit allows, and stays out of core dumps.
package enum SecretArena {
    /// Slot sizes in bytes; a request gets the smallest that holds it, more gets its own slab.
    static let slotSizes = [32, 64, 128, 256, 512, 1024, 2048, 4096]

    /// The size of a slab: 2,048 slots of 32 bytes, or 16 of 4 KiB.
    static let slabSize = 64 * 1024

    private static let pools: [SlotPool] = slotSizes.map { SlotPool(slotSize: $0) }

    /// How many slabs the slots for `count` bytes stand in; 0 above the largest slot.
    package static func slabCount(forSecretsOf count: Int) -> Int {
        pools.first { count <= $0.slotSize }?.slabCount ?? 0
    }

    /// A zeroed slot of at least `count` bytes.
    static func allocate(count: Int) -> SecretSlot {
        for pool in pools where count <= pool.slotSize {
            return pool.allocate()
        }
        return Slab(slotSize: count, slotCount: 1, pool: nil).take()
    }
}

/// One slot of guarded memory, given back by `release()`.
@safe struct SecretSlot {
    /// The first byte, aligned to the slot's size, or to a page where that is smaller.
    let start: UnsafeMutablePointer<UInt8>
    private let slab: Slab

    fileprivate init(start: UnsafeMutablePointer<UInt8>, slab: Slab) {
        unsafe self.start = start
        self.slab = slab
    }

    /// Wipes the slot and gives it back; nothing may touch it afterwards.
    func release() {
        unsafe sodium_memzero(start, slab.slotSize)
        if let pool = slab.pool {
            pool.giveBack(self, to: slab)
        }
    }
}

/// The slabs of one slot size.
private final class SlotPool: Sendable {
    let slotSize: Int
    private let slabs = Locked(Slabs())

    /// The slabs that have a free slot; a full slab is known by its slots alone.
    private struct Slabs {
        var available: [Slab] = []
        var unusedCount = 0
        var count = 0
    }

    var slabCount: Int { slabs.withLock { $0.count } }

    init(slotSize: Int) {
        self.slotSize = slotSize
    }

    func allocate() -> SecretSlot {
        slabs.withLock { slabs in
            if let slab = slabs.available.last {
                if slab.isUnused { slabs.unusedCount -= 1 }
                let slot = slab.take()
                if slab.isFull { slabs.available.removeLast() }
                return slot
            }
            let slab = Slab(
                slotSize: slotSize, slotCount: SecretArena.slabSize / slotSize, pool: self)
            slabs.available.append(slab)
            slabs.count += 1
            return slab.take()
        }
    }

    func giveBack(_ slot: SecretSlot, to slab: Slab) {
        slabs.withLock { slabs in
            if slab.isFull { slabs.available.append(slab) }
            slab.put(slot)
            guard slab.isUnused else { return }
            // One unused slab stays, so that a session after another does not map and unmap.
            if slabs.unusedCount == 0 {
                slabs.unusedCount = 1
            } else {
                slabs.available.removeAll { $0 === slab }
                slabs.count -= 1
            }
        }
    }
}

/// One guarded allocation and the list of its free slots.
///
/// It lives as long as its pool lists it or a slot of it is out.
@safe private final class Slab {
    let slotSize: Int
    let pool: SlotPool?
    private let base: UnsafeMutablePointer<UInt8>
    private var free: [UInt16]
    private let slotCount: Int

    init(slotSize: Int, slotCount: Int, pool: SlotPool?) {
        Sodium.start()
        self.slotSize = slotSize
        self.slotCount = slotCount
        self.pool = pool
        let size = slotSize * slotCount
        // As with every allocation in Swift, no memory is the end of the process.
        guard let memory = unsafe sodium_malloc(size) else {
            preconditionFailure("no memory for \(size) bytes of secrets")
        }
        unsafe sodium_memzero(memory, size)
        unsafe base = memory.bindMemory(to: UInt8.self, capacity: size)
        free = (0..<slotCount).reversed().map { UInt16($0) }
    }

    deinit {
        unsafe sodium_free(base)
    }

    var isFull: Bool { free.isEmpty }
    var isUnused: Bool { free.count == slotCount }

    func take() -> SecretSlot {
        let index = Int(free.removeLast())
        return unsafe SecretSlot(start: base + index * slotSize, slab: self)
    }

    func put(_ slot: SecretSlot) {
        free.append(UInt16(unsafe (slot.start - base) / slotSize))
    }
}
