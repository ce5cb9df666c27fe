internal import BLESec
internal import BLESecPrimitives
internal import BLESecToolKit
internal import Glibc

/// Asks for a passphrase at the terminal, without showing it.
enum TerminalPrompt {
    /// Asks once to open a key, and twice for a new key.
    static let source = PassphraseSource { path, purpose throws(ChannelError) in
        switch purpose {
        case .opening: return try ask("Passphrase for \(path): ")
        case .protecting:
            let passphrase = try ask("New passphrase for \(path): ")
            let again = try ask("The same again: ")
            guard passphrase.isEqual(to: again) else {
                throw ChannelError(.badKey, "the two passphrases differ: try again")
            }
            return passphrase
        }
    }

    /// Whether this process has a terminal to ask at.
    static var isPossible: Bool {
        let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { return false }
        close(terminal)
        return true
    }

    static func ask(_ prompt: String) throws(ChannelError) -> SecretBytes {
        // The passphrase is not read from standard input, which may carry the channel's data.
        let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else {
            throw ChannelError(
                .noSuchFile,
                "there is no terminal to ask for the passphrase: use --passphrase-file FILE")
        }
        defer { close(terminal) }
        var settings = termios()
        guard unsafe tcgetattr(terminal, &settings) == 0 else {
            throw ChannelError(
                .inputOutput, "the terminal cannot be used: use --passphrase-file FILE")
        }
        let original = settings
        settings.c_lflag &= ~tcflag_t(ECHO)
        settings.c_lflag |= tcflag_t(ECHONL)
        // No handler catches the signal of Ctrl-\, which would end the process and leave the
        // terminal without echo. After Ctrl-Z, the shell turns echo on, and the rest of the
        // passphrase would be shown. So neither key causes a signal during the prompt.
        unsafe withUnsafeMutableBytes(of: &settings.c_cc) {
            for character in [VQUIT, VSUSP] { unsafe $0[Int(character)] = 0 }
        }
        // A signal must not leave the terminal without echo, so this handler restores the echo. It
        // then ends the process, even if an older handler would let the process continue: the rest
        // of the passphrase would be shown.
        let token = Signals.add { number in
            restore(terminal, original)
            Signals.endProcess(by: number)
        }
        defer {
            restore(terminal, original)
            Signals.remove(token)
        }
        unsafe tcsetattr(terminal, TCSAFLUSH, &settings)
        // A file's name may contain escape sequences of terminals.
        try StandardOutput.write(Array(Diagnostics.oneLine(prompt).utf8), to: terminal)
        return try readLine(terminal)
    }

    private static func restore(_ terminal: Int32, _ settings: termios) {
        var settings = settings
        unsafe tcsetattr(terminal, TCSAFLUSH, &settings)
    }

    private static func readLine(_ terminal: Int32) throws(ChannelError) -> SecretBytes {
        // A terminal's line has at most 4,096 bytes (N_TTY_BUF_SIZE).
        var line = SecretBytes(count: 4_096)
        var count = 0
        unsafe line.withUnsafeMutableBytes { buffer in
            while count < buffer.count {
                let rest = unsafe UnsafeMutableBufferPointer(rebasing: buffer[count...])
                let got = unsafe read(terminal, rest.baseAddress, rest.count)
                if got < 0, errno == EINTR { continue }
                guard got > 0 else { return }
                count += got
                if unsafe buffer[count - 1] == UInt8(ascii: "\n") { return }
            }
        }
        if count > 0, line.span[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        guard count > 0 else { throw ChannelError(.badKey, "no passphrase was given") }
        return SecretBytes(copying: line.span.extracting(..<count))
    }
}
