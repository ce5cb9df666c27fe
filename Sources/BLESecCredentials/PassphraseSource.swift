public import BLESecChannelCore
public import BLESecPrimitives

/// Supplies the passphrase of a key file. The source is asked only when a passphrase is needed.
public struct PassphraseSource: Sendable {
    /// What the passphrase is for.
    public enum Purpose: Sendable, Hashable {
        /// To read an existing key: a prompt should ask once.
        case opening
        /// To write a new key: a prompt should ask twice.
        case protecting
    }

    /// The longest passphrase in bytes: OpenSSL's own limit (`PEM_BUFSIZE`).
    public static let maximumLength = 1_024

    /// Returns the passphrase for the key file with this path.
    public typealias Ask = @Sendable (_ path: String, Purpose) throws(ChannelError) -> SecretBytes

    let ask: Ask

    /// Makes a source that calls `ask`, which may block the thread for a long time.
    public init(_ ask: @escaping Ask) { self.ask = ask }

    /// The first line of a FIFO, or of a file that only its owner may open.
    public static func file(_ path: String) -> PassphraseSource {
        PassphraseSource { _, _ throws(ChannelError) in
            try SecretFile.readLine(path, limit: maximumLength)
        }
    }

    /// Asks for the passphrase and checks its length.
    func passphrase(for path: String, _ purpose: Purpose) throws(ChannelError) -> SecretBytes {
        let passphrase = try ask(path, purpose)
        guard (1...Self.maximumLength).contains(passphrase.count) else {
            throw .badKey(
                "a passphrase has 1 to \(Self.maximumLength) bytes, and this one has "
                    + "\(passphrase.count)")
        }
        return passphrase
    }
}
