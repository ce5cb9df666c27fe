internal import BLESecLocking
internal import CBLESecSodium

/// The process's guarded memory: slots for secrets, in slabs from `sodium_malloc`.
///
/// A separate guarded allocation costs 15 µs, four memory maps and at least one page of locked
/// memory. A slab has this cost once for many slots. It lies between inaccessible pages, is locked
/// into memory as far as the process's limit allows, and is excluded from core dumps.
package enum SecretArena {
    /// Slot sizes in bytes. A request gets a slot of the smallest size that fits. A request above
    /// the largest size gets its own slab.
    static let slotSizes = [32, 64, 128, 256, 512, 1024, 2048, 4096]
    /// The size of a slab: 2,048 slots of 32 bytes, or 16 of 4 KiB.
    static let slabSize = 64 * 1024
    private static let pools: [SlotPool] = slotSizes.map { SlotPool(slotSize: $0) }

    /// The number of slabs with the slot size that a secret of `count` bytes gets; 0 if `count` is
    /// above every slot size.
    package static func slabCount(forSecretsOf count: Int) -> Int {
        pools.first { count <= $0.slotSize }?.slabCount ?? 0
    }

    /// A zeroed slot of at least `count` bytes.
    static func allocate(count: Int) -> SecretSlot {
        for pool in pools where count <= pool.slotSize { return pool.allocate() }
        return Slab(slotSize: count, slotCount: 1, pool: nil).take()
    }
}

/// A slot of guarded memory, freed by `release()`.
@safe struct SecretSlot {
    /// The first byte. It is aligned to the slot's size if that is one of `slotSizes`.
    let start: UnsafeMutablePointer<UInt8>
    fileprivate let slab: Slab

    /// Wipes and frees the slot, which must not be used afterwards.
    func release() {
        unsafe sodium_memzero(start, slab.slotSize)
        if let pool = slab.pool { pool.giveBack(self, to: slab) }
    }
}

/// The slabs of one slot size.
private final class SlotPool: Sendable {
    let slotSize: Int
    private let slabs = Locked(Slabs())

    private struct Slabs {
        /// The slabs that have a free slot. A full slab is counted in `count`, but is not in this
        /// list: its slots keep it alive.
        var available: [Slab] = []
        /// How many slabs have no slot in use.
        var unusedCount = 0
        /// The number of all slabs.
        var count = 0
    }

    var slabCount: Int { slabs.withLock { $0.count } }

    init(slotSize: Int) { self.slotSize = slotSize }

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
            // Keep one unused slab, so that successive sessions do not map and unmap memory.
            if slabs.unusedCount == 0 {
                slabs.unusedCount = 1
            } else {
                slabs.available.removeAll { $0 === slab }
                slabs.count -= 1
            }
        }
    }
}

/// A guarded allocation and the list of its free slots.
///
/// A slab lives as long as its pool lists it or one of its slots is in use.
@safe private final class Slab {
    let slotSize: Int
    /// Nil for a slab that was made for one large request.
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
        // As for every allocation in Swift, the process ends if there is no memory.
        guard let memory = unsafe sodium_malloc(size) else {
            preconditionFailure("no memory for \(size) bytes of secrets")
        }
        unsafe sodium_memzero(memory, size)
        unsafe base = memory.bindMemory(to: UInt8.self, capacity: size)
        free = (0..<slotCount).reversed().map { UInt16($0) }
    }

    deinit { unsafe sodium_free(base) }

    var isFull: Bool { free.isEmpty }
    var isUnused: Bool { free.count == slotCount }

    func take() -> SecretSlot {
        let index = Int(free.removeLast())
        return unsafe SecretSlot(start: base + index * slotSize, slab: self)
    }

    func put(_ slot: SecretSlot) { free.append(UInt16(unsafe (slot.start - base) / slotSize)) }
}
