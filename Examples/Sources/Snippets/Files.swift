import BLESec
import BLESecFiles

/// The code of docs/files.md and of BLESecFiles.md in the documentation of BLESecFiles.
func exchangeFiles(over connection: PeerConnection) async throws {
    let transfer = try await connection.sendFile("photo.jpg")
    for await progress in transfer.progress { print(progress.bytes, progress.state) }
    print(try await transfer.finish())  // the name under which the peer has it

    for await offer in connection.incomingFiles {
        let transfer = offer.accept(into: "inbox")  // or: await offer.refuse()
        Task { try await transfer.finish() }
    }
}
