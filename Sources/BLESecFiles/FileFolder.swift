internal import CBLESecLinux
internal import BLESecLocking
internal import BLESecPrimitives
internal import Glibc

/// A folder that receives files, as a transfer from one peer uses it. Transfers from other peers may
/// use the same folder at the same time. Incomplete files are *held* in the subfolder
/// `.blesec-partial`, under names that depend on the peer and on the offer. Used on one thread.
final class FileFolder {
    struct Rules: Sendable {
        var allowsHidden = false
        var overwrites = false
        /// How many bytes of incomplete files the peer may have here.
        var quota = UInt64.max
    }

    let rules: Rules
    let folder: Descriptor
    /// The folder with the peer's incomplete files, in `allPeersFolder`. Its name is a hash of the
    /// peer's key.
    let peerFolder: Descriptor
    /// The folder with the incomplete files of all peers.
    private let allPeersFolder: Descriptor
    private let path: String
    /// When this object was made, by the machine's calendar clock.
    private let madeAt: Duration

    var notes: StoredNotes {
        StoredNotes(folder: folder, peerFolder: peerFolder, allowsHidden: rules.allowsHidden)
    }

    /// How long incomplete files, and notes about stored offers, are kept after their last change.
    static let lifetime = Duration.seconds(7 * 86_400)
    /// How often a process removes older incomplete files and notes.
    private static let cleaningInterval: Duration = .seconds(600)
    /// When this process last removed old incomplete files and notes, by the path of the folder.
    private static let lastCleaning = Locked<[String: ContinuousClock.Instant]>([:])

    /// Opens the folder. `now` is the time of the machine's calendar clock, since 1970.
    init(
        _ path: String, from peer: [UInt8], _ rules: Rules, now: Duration = FileFolder.calendarTime
    ) throws(FileFailure) {
        self.rules = rules
        self.path = path
        madeAt = now
        folder = try Descriptor.open(path, O_RDONLY | O_DIRECTORY)
        for _ in 0..<Self.attempts {
            let allPeersFolder = try Self.privateFolder(FileName.partialFolder, in: folder, path)
            // Another transfer may be removing the empty folder at this moment.
            guard try allPeersFolder.lockShared(), allPeersFolder.hasPath else {
                // Here the thread may block for 10 ms: the removal takes only a few system calls, and
                // this thread has nothing else to do.
                usleep(10_000)
                continue
            }
            guard try Self.checkIsPrivate(allPeersFolder, path) else { break }
            self.allPeersFolder = allPeersFolder
            func openPeerFolder() throws(FileFailure) -> Descriptor {
                try Self.privateFolder(
                    HeldName.ofPeer(peer), in: allPeersFolder, "\(path)/\(FileName.partialFolder)")
            }
            do throws(FileFailure) {
                peerFolder = try openPeerFolder()
            } catch {
                guard error.problem == .noSpace else { throw error }
                Self.removeOldIfDue(in: allPeersFolder, path, at: now)
                peerFolder = try openPeerFolder()
            }
            guard try Self.checkIsPrivate(peerFolder, path) else { break }
            return
        }
        throw FileFailure(.cannotWrite, "\(path)/\(FileName.partialFolder) is in use")
    }

    /// How many times, at most, a folder is opened while another transfer may be removing it.
    private static let attempts = 200

    /// Opens or makes a folder that only this user may enter. `path` is the path of `parent`, for
    /// errors.
    private static func privateFolder(
        _ name: String, in parent: Descriptor, _ path: String
    ) throws(FileFailure) -> Descriptor {
        do throws(FileFailure) {
            return try parent.folder(name, mode: 0o700)
        } catch {
            throw FileFailure(error.problem, "\(path)/\(error.text)")
        }
    }

    /// Throws if a folder of incomplete files belongs to another user, or if other users may change
    /// it: they could redirect or replace the files. That this user owns the folder is not enough:
    /// users who may change the receiving folder can put another folder of this user there, which
    /// they may change. Returns false if the folder is gone.
    private static func checkIsPrivate(
        _ folder: Descriptor, _ path: String
    ) throws(FileFailure) -> Bool {
        guard let status = folder.status else { return false }
        guard status.st_uid == geteuid() else {
            throw FileFailure(
                .cannotWrite, "\(path)/\(FileName.partialFolder) belongs to another user")
        }
        guard !status.isOpenToChanges || !keepsModes(folder) else {
            throw FileFailure(
                .cannotWrite,
                "\(path)/\(FileName.partialFolder), or a folder in it, can be changed by other "
                    + "users: move it away, or run `chmod -R go-w "
                    + "\(path)/\(FileName.partialFolder)`")
        }
        return true
    }

    /// Whether the file system of a folder keeps modes; some, such as exFAT, give all files one
    /// mode. Makes a file, and reads its mode from the descriptor, so that nobody can replace the
    /// file in between.
    private static func keepsModes(_ folder: Descriptor) -> Bool {
        let name = "mode-" + HeldName.hex((0..<16).map { _ in UInt8.random(in: 0...255) })
        guard let file = try? folder.open(name, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600) else {
            return true
        }
        folder.remove(name)
        return file.status.map { $0.st_mode & 0o077 == 0 } ?? true
    }

    /// Removes the notes about the stored offers with these ids, and calls ``removeEmpty()``.
    func forget(_ ids: Set<[UInt8]>) {
        for id in ids { notes.remove(id) }
        removeEmpty()
    }

    /// Removes the empty folders of incomplete files, also those of other peers. Removes nothing
    /// while another transfer uses any of them. After this call, the object is not used any more.
    func removeEmpty() {
        // A transfer that makes or uses a peer's folder has a shared lock on `allPeersFolder`.
        if (try? allPeersFolder.lock()) == true {
            for peer in (try? allPeersFolder.names()) ?? [] where HeldName.isOfPeer(peer) {
                allPeersFolder.remove(peer, isFolder: true)
            }
            folder.remove(FileName.partialFolder, isFolder: true)
        }
        // If two transfers that end at the same time kept their locks on `allPeersFolder`, each
        // would keep the other from removing the folders.
        allPeersFolder.unlock()
    }

    /// Opens the folder with what is held of an offer, and locks it for one transfer.
    func open(_ offer: FileFrame.Offer) throws(FileFailure) -> Descriptor {
        for _ in 0..<Self.attempts {
            let held = try peerFolder.folder(HeldName.ofOffer(offer), mode: 0o700)
            guard try held.lock() else {
                throw FileFailure(.isActive, "\(offer.name) is being received already")
            }
            if held.hasPath { return held }
        }
        throw FileFailure(.isActive, "\(offer.name) is in use")
    }

    /// Removes the folder of an offer with all that is in it.
    func remove(_ offer: FileFrame.Offer) { peerFolder.removeAll(HeldName.ofOffer(offer)) }

    /// Removes `held`, the folder of an offer, if it contains nothing, or only an empty tree.
    func removeIfEmpty(_ offer: FileFrame.Offer, _ held: Descriptor) {
        held.remove(HeldName.tree, isFolder: true)
        // The folder stays locked until it is removed, so that no other transfer begins to use it.
        // If it is removed already, another transfer's folder may have its name by now.
        if held.hasPath { peerFolder.remove(HeldName.ofOffer(offer), isFolder: true) }
    }

    /// The time of the machine's calendar clock, since 1970.
    static var calendarTime: Duration {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        return .seconds(now.tv_sec)
    }

    /// Calls ``removeOld(at:)``, but at most once in each ``cleaningInterval``, because a call
    /// takes time in proportion to what is held.
    func removeOldIfDue() { Self.removeOldIfDue(in: allPeersFolder, path, at: madeAt) }

    private static func removeOldIfDue(
        in allPeersFolder: Descriptor, _ path: String, at now: Duration
    ) {
        let isDue = lastCleaning.withLock { times in
            let time = ContinuousClock.now
            times = times.filter { time - $0.value < cleaningInterval }
            guard times[path] == nil else { return false }
            times[path] = time
            return true
        }
        if isDue { removeOld(in: allPeersFolder, at: now) }
    }

    /// Removes the incomplete files and the notes, of all peers, that have not changed for
    /// ``lifetime`` before `now`, a time since 1970. Keeps what another transfer uses.
    func removeOld(at now: Duration) { Self.removeOld(in: allPeersFolder, at: now) }

    private static func removeOld(in allPeersFolder: Descriptor, at now: Duration) {
        let limit = now - lifetime
        guard let peers = try? allPeersFolder.names() else { return }
        for peer in peers where HeldName.isOfPeer(peer) {
            guard let folder = try? allPeersFolder.open(peer, O_RDONLY | O_DIRECTORY),
                let names = try? folder.names()
            else { continue }
            for name in names where HeldName.isOfOfferOrNote(name) {
                // Most entries are young, and need not be opened.
                guard let status = folder.status(of: name), status.lastChange < limit,
                    let entry = try? folder.open(name, O_RDONLY),
                    lastChange(of: entry) < limit, (try? entry.lock()) == true
                else { continue }
                folder.removeAll(name)
            }
        }
    }

    /// The time of the last change of a file, since 1970. For a folder, changes of the files and
    /// folders directly in it count, too.
    private static func lastChange(of entry: Descriptor) -> Duration {
        let ownChange = entry.status?.lastChange ?? .zero
        let names = (try? entry.names()) ?? []
        return names.reduce(ownChange) { max($0, entry.status(of: $1)?.lastChange ?? .zero) }
    }

    // MARK: - Final names

    /// Gives a complete file or tree its final name, and returns that name. First writes a note
    /// with the name, so that the sender need not send everything again if the answer `done` is
    /// lost. If the name cannot be made durable, takes the name back, unless a file was replaced.
    func publish(
        _ name: String, in held: Descriptor, _ offer: FileFrame.Offer
    ) throws(FileFailure) -> String {
        guard FileName.isAllowed(offer.name, allowsHidden: rules.allowsHidden) else {
            throw FileFailure(.badName, "the name is not allowed")
        }
        guard let status = held.status(of: name) else {
            throw FileFailure(.cannotWrite, "\(offer.name) is gone")
        }
        let attributes = try StoredNotes.Attributes(of: name, in: held)
        for number in 1...10_000 {
            let finalName = number == 1 ? offer.name : FileName.numbered(offer.name, number)
            let existing = folder.status(of: finalName)
            // A numbered name is not the name that was sent, so nothing under it is replaced.
            let replaces =
                rules.overwrites && number == 1 && existing?.isRegular == true && status.isRegular
            if existing != nil, !replaces { continue }
            try notes.write(offer, attributes, finalName: finalName)
            if replaces {
                try held.rename(name, to: folder, finalName)
            } else {
                guard try held.renameNoReplace(name, to: folder, finalName) else { continue }
            }
            do throws(FileFailure) {
                try folder.synchronize()
            } catch {
                // The transfer fails, so the final name is taken back. A file that was replaced
                // cannot be restored, and the new file stays.
                if !replaces { _ = try? folder.renameNoReplace(finalName, to: held, name) }
                throw error
            }
            remove(offer)
            return finalName
        }
        throw FileFailure(.cannotWrite, "\(offer.name) exists, and so do all its numbered names")
    }
}
