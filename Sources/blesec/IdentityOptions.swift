internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// The options for the passphrase of a key file, for every command that reads or writes a key file.
enum IdentityOptions {
    static let passphraseFile = Option(
        name: "--passphrase-file", value: "FILE",
        help: "Read the key's passphrase from the first line of FILE. Only the file's owner may "
            + "have permission to open FILE.")
    static let passphrasePrompt = Option(
        name: "--passphrase-prompt",
        help: "Ask for the key's passphrase at the terminal, without showing it. For an existing "
            + "key, blesec asks without the option, too, if the key is encrypted and "
            + "--passphrase-file is missing.")

    static let all = [passphraseFile, passphrasePrompt]

    /// The source of the passphrase that the command line names; nil when it names none.
    static func passphrase(_ arguments: Arguments) throws(ChannelError) -> PassphraseSource? {
        try arguments.exclude(passphraseFile, passphrasePrompt)
        if arguments.has(passphrasePrompt) { return TerminalPrompt.source }
        return arguments.value(passphraseFile).map { .file($0) }
    }

    /// The source of the passphrase for an existing key. If the command line names none, a prompt
    /// on the terminal asks for the passphrase. Without a terminal, an encrypted key is refused
    /// with an error that names `--passphrase-file`.
    static func passphraseOfExistingKey(
        _ arguments: Arguments
    ) throws(ChannelError) -> PassphraseSource {
        let asking = PassphraseSource { path, _ throws(ChannelError) in
            guard TerminalPrompt.isPossible else {
                throw ChannelError(
                    .badKey,
                    "\(path) is encrypted: give its passphrase with --passphrase-file FILE, since "
                        + "there is no terminal to ask for it")
            }
            return try TerminalPrompt.ask("Passphrase for \(path): ")
        }
        return try passphrase(arguments) ?? asking
    }

    /// Reads a key file. If the file is encrypted and no option names a passphrase, a prompt asks
    /// for the passphrase.
    static func load(_ path: String, _ arguments: Arguments) throws(ChannelError) -> IdentityKey {
        try IdentityFile.load(path, passphrase: try passphraseOfExistingKey(arguments))
    }

    static func print(_ identity: IdentityKey) throws(ChannelError) {
        let key = Base64.encode(identity.publicKey, padded: true)
        let fingerprint = identity.fingerprint.description
        let hash = identity.hash.noiseName
        guard !Diagnostics.isJSON else {
            return try StandardOutput.print(
                [("public-key", key), ("fingerprint", fingerprint)],
                further: [("hash", .string(hash))])
        }
        // The fingerprint stays the last line, where scripts expect it.
        try StandardOutput.print(
            [("public-key", key), ("noise-hash", hash), ("fingerprint", fingerprint)])
    }
}
