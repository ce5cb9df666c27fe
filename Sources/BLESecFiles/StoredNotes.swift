internal import BLESecPrimitives
internal import CBLESecLinux

/// The notes about the stored offers of one peer. A note has the final name of what was offered,
/// so that a sender that did not get the answer `done` need not send everything again.
struct StoredNotes {
    /// The folder that receives files.
    let folder: Descriptor
    /// The folder with the peer's incomplete files, and with these notes.
    let peerFolder: Descriptor
    let allowsHidden: Bool

    /// The name under which an offer was stored before. Nil if there is no note about the offer, or
    /// if the stored file or folder no longer has this name or was changed.
    func storedName(_ offer: FileFrame.Offer) -> String? {
        guard let note = try? peerFolder.open(HeldName.ofNote(offer.id), O_RDONLY),
            let bytes = try? note.read(at: 0, atMost: 4_096)
        else { return nil }
        let parts = String(decoding: bytes, as: UTF8.self).split(
            separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3 else { return nil }
        let (summary, attributes, name) = (parts[0], parts[1], String(parts[2]))
        guard summary == Self.summary(offer),
            FileName.isAllowed(name, allowsHidden: allowsHidden),
            (try? Attributes(of: name, in: folder).text) == String(attributes)
        else { return nil }
        return name
    }

    /// Writes a durable note that an offer is stored under a final name.
    func write(
        _ offer: FileFrame.Offer, _ attributes: Attributes, finalName: String
    ) throws(FileFailure) {
        let text = [Self.summary(offer), attributes.text, finalName].joined(separator: "\n")
        let temporary = HeldName.ofNewNote(offer.id)
        peerFolder.remove(temporary)
        let note = try peerFolder.open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try note.write(Array(text.utf8), at: 0)
        try note.synchronize()
        try peerFolder.rename(temporary, to: peerFolder, HeldName.ofNote(offer.id))
        try peerFolder.synchronize()
    }

    /// Removes the note about the stored offer with this id.
    func remove(_ id: [UInt8]) { peerFolder.remove(HeldName.ofNote(id)) }

    /// What a note records of the offer: a hash of all that the offer announces. The version alone
    /// is not enough, because the peer chooses it.
    private static func summary(_ offer: FileFrame.Offer) -> String {
        let kind = offer.isFolder ? "folder" : "file"
        let text = "\(kind) \(offer.files) \(offer.bytes) \(offer.name)"
        return HeldName.hex(sha256(offer.version + Array(text.utf8)))
    }

    /// What a note records of a file or folder, besides its name: the device and inode; for a file
    /// also the size and time, which distinguish it from a later version; for a folder a hash of
    /// its contents' names, sizes and times.
    struct Attributes {
        fileprivate let text: String

        init(of name: String, in folder: Descriptor) throws(FileFailure) {
            guard let status = folder.status(of: name) else {
                throw FileFailure(.cannotWrite, "\(name) is gone")
            }
            let inode = "\(status.st_dev) \(status.st_ino)"
            guard status.isFolder else {
                text = "\(inode) \(Self.sizeAndTime(status))"
                return
            }
            var hash = HashContext(.sha256)
            let inner = try folder.open(name, O_RDONLY | O_DIRECTORY)
            try Self.addContents(of: inner, "", to: &hash)
            text = "\(inode) \(HeldName.hex(hash.finished()))"
        }

        private static func sizeAndTime(_ status: stat) -> String {
            "\(status.st_size) \(status.st_mtim.tv_sec) \(status.st_mtim.tv_nsec)"
        }

        /// Adds the paths of all files and folders in a folder and below it, and each file's size
        /// and time.
        private static func addContents(
            of folder: Descriptor, _ prefix: String, to hash: inout HashContext, depth: Int = 0
        ) throws(FileFailure) {
            guard depth <= FileName.mostParts else {
                throw FileFailure(.other, "\(prefix) is too deep")
            }
            for name in try folder.names() {
                guard let status = folder.status(of: name) else { continue }
                let path = "\(prefix)/\(name)"
                guard status.isFolder else {
                    hash.update(Array("file \(sizeAndTime(status)) \(path)\n".utf8))
                    continue
                }
                hash.update(Array("folder \(path)\n".utf8))
                let inner = try folder.open(name, O_RDONLY | O_DIRECTORY)
                try addContents(of: inner, path, to: &hash, depth: depth + 1)
            }
        }
    }
}
