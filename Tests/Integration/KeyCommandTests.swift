import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec keygen` and `blesec pubkey`.
    @Suite struct KeyCommandTests {
        let folder = ScratchFolder()

        @Test(
            "keygen prints exactly three lines, and pubkey prints the same three",
            arguments: ["x25519", "x448"])
        func threeLines(_ curve: String) throws {
            let path = folder.file("key")
            let made = try Tool.run("keygen", path, "--curve", curve)
            #expect(made.status == 0)
            let lines = made.text.split(separator: "\n", omittingEmptySubsequences: false)
            try #require(lines.count == 4)
            let base64Length = curve == "x25519" ? 44 : 76
            #expect(lines[0].hasPrefix("public-key: "))
            #expect(lines[0].count == "public-key: ".count + base64Length)
            #expect(lines[0].hasSuffix("="))
            #expect(lines[1] == "noise-hash: SHA256")
            #expect(lines[2].hasPrefix("fingerprint: SHA256:"))
            #expect(lines[2].count == "fingerprint: SHA256:".count + 43)
            #expect(lines[3] == "")
            #expect(folder.mode("key") == 0o600)
            let shown = try Tool.run("pubkey", path)
            #expect(shown.status == 0)
            #expect(shown.text == made.text)
        }

        @Test("the public key and the fingerprint equal those from openssl")
        func equalOpenSSL() throws {
            let path = folder.file("key")
            let made = try Tool.run("keygen", path)
            let command = """
                openssl pkey -in '\(path)' -pubout -outform DER > '\(folder.file("spki"))' &&
                printf 'public-key: ' && tail -c 32 '\(folder.file("spki"))' | base64 &&
                echo 'noise-hash: SHA256' &&
                printf 'fingerprint: SHA256:' &&
                openssl dgst -sha256 -binary '\(folder.file("spki"))' | base64 | tr -d =
                """
            let outcome = try Subprocess.run("sh", ["-c", command])
            #expect(outcome.status == 0)
            #expect(outcome.text == made.text)
        }

        @Test(
            "keygen and pubkey print the hash; for a file without the comment, pubkey prints SHA256"
        )
        func hashes() throws {
            let path = folder.file("key")
            let made = try Tool.run("keygen", path, "--hash", "BLAKE2b")
            try #require(made.status == 0, "\(made.errors)")
            #expect(made.text.contains("\nnoise-hash: BLAKE2b\n"))
            #expect(try Tool.run("pubkey", path).text == made.text)
            // What openssl writes has no comment. With a copy of the comment, the hash is the same.
            let (lost, kept) = (folder.file("lost"), folder.file("kept"))
            let script = """
                umask 077
                openssl pkcs8 -topk8 -nocrypt -in '\(path)' -out '\(lost)' &&
                { head -n 1 '\(path)'; cat '\(lost)'; } > '\(kept)'
                """
            let converted = try Subprocess.run("sh", ["-c", script])
            try #require(converted.status == 0, "\(converted.errors)")
            #expect(try Tool.run("pubkey", lost).text.contains("\nnoise-hash: SHA256\n"))
            #expect(try Tool.run("pubkey", kept).text == made.text)
        }

        @Test("with --json, a key and an error are each printed as one object")
        func json() throws {
            let path = folder.file("key")
            let made = try Tool.run("keygen", "--json", "--hash=SHA512", path)
            #expect(made.text.hasPrefix("{\"public-key\": \""))
            #expect(made.text.hasSuffix("\"hash\": \"SHA512\"}\n"))
            #expect(try Tool.run("pubkey", path, "--json").text == made.text)
            let failed = try Tool.run("keygen", "--json", path)
            #expect(failed.status == 73)
            #expect(failed.errors.hasPrefix("{\"event\": \"error\", \"code\": \"cannot-create\", "))
            #expect(failed.errors.hasSuffix("\"exit\": 73}\n"))
        }

        @Test(
            "the umask does not change the mode of a key file",
            arguments: ["000", "777"])
        func umask(_ mask: String) throws {
            let path = folder.file("key")
            let command = "umask \(mask); exec '\(Tool.path)' keygen '\(path)'"
            #expect(try Subprocess.run("sh", ["-c", command]).status == 0)
            #expect(folder.mode("key") == 0o600)
        }

        @Test("the umask does not change the mode of new folders", arguments: ["0177", "0777"])
        func umaskOfFolders(_ mask: String) throws {
            let path = folder.file("new/deep/key")
            let command = "umask \(mask); exec '\(Tool.path)' keygen '\(path)'"
            let made = try Subprocess.run("sh", ["-c", command])
            #expect(made.status == 0, "\(made.errors)")
            #expect(folder.mode("new") == 0o700 && folder.mode("new/deep") == 0o700)
        }

        @Test(
            "a path that can only name a folder is refused, and no folder is made",
            arguments: ["new/sub/", "new/sub/.", "new/.."])
        func folderPath(_ name: String) throws {
            let path = folder.file(name)
            Tool.expect(
                try Tool.run("keygen", path), status: 73,
                "\(path) is the path of a folder, and not of a file: add a name for the file")
            #expect(folder.names == [])
        }

        @Test("in a working directory whose path is not UTF-8, a relative path is refused")
        func invalidBytesInDirectory() throws {
            // Another folder, whose name has U+FFFD in place of the byte that is not UTF-8.
            try #require(unsafe mkdir(folder.file("x\u{FFFD}"), 0o700) == 0)
            try #require(try Tool.run("keygen", folder.file("x\u{FFFD}/key")).status == 0)
            let script = #"""
                here="$2/$(printf 'x\377')" && mkdir -p "$here" && cd "$here" && exec "$1" "$3" "$4"
                """#
            for (command, name) in [("keygen", "new"), ("pubkey", "key")] {
                let outcome = try Subprocess.run(
                    "sh", ["-c", script, "sh", Tool.path, folder.path, command, name])
                Tool.expect(
                    outcome, status: 65,
                    "\(name) cannot be opened: the path of the working directory is not UTF-8")
            }
        }

        @Test("keygen never overwrites a file, even when eight processes run at the same time")
        func neverOverwrites() throws {
            let path = folder.file("key")
            let processes = try (0..<8).map { _ in try Tool.start(["keygen", path]) }
            let outcomes = try Subprocess.wait(processes)
            let winners = outcomes.filter { $0.status == 0 }
            try #require(winners.count == 1)
            for loser in outcomes where loser.status != 0 {
                Tool.expect(loser, status: 73, "\(path) exists and is not overwritten")
            }
            #expect(try Tool.run("pubkey", path).text == winners[0].text)
            #expect(folder.names == ["key"])
        }

        @Test("a key that keygen encrypts with a passphrase file opens only with this passphrase")
        func passphraseFile() throws {
            let path = folder.file("key")
            let right = folder.write("right", "correct horse\n")
            let wrong = folder.write("wrong", "incorrect horse\n")
            let made = try Tool.run("keygen", path, "--passphrase-file", right)
            try #require(made.status == 0)
            let text = String(decoding: try #require(folder.read("key")), as: UTF8.self)
            #expect(text.contains("BEGIN ENCRYPTED PRIVATE KEY"))
            #expect(try Tool.run("pubkey", path, "--passphrase-file=\(right)").text == made.text)
            let refused = try Tool.run("pubkey", path, "--passphrase-file", wrong)
            Tool.expect(refused, status: 65, "the passphrase is wrong")
            let withoutOption = try Tool.run("pubkey", path)
            Tool.expect(
                withoutOption, status: 65,
                "is encrypted: give its passphrase with --passphrase-file FILE, since there is no")
            let withoutFile = try Tool.run(
                "pubkey", path, "--passphrase-file", folder.file("none"))
            Tool.expect(withoutFile, status: 66, "none: no such file")
            let openSSL = try Subprocess.run(
                "openssl", ["pkey", "-in", path, "-passin", "file:\(right)", "-noout"])
            #expect(openSSL.status == 0)
        }

        @Test("a passphrase may come from a FIFO")
        func passphraseFIFO() throws {
            let path = folder.file("key")
            let right = folder.write("right", "correct horse\n")
            let made = try Tool.run("keygen", path, "--passphrase-file", right)
            try #require(made.status == 0)
            let fifo = folder.file("fifo")
            try #require(try Subprocess.run("mkfifo", ["-m", "600", fifo]).status == 0)
            let writer = try Subprocess("sh", ["-c", "cat \"$0\" > \"$1\"", right, fifo])
            let shown = try Tool.start(["pubkey", path, "--passphrase-file", fifo])
                .wait(whileServing: [writer])
            #expect(shown.status == 0, "\(shown.errors)")
            #expect(shown.text == made.text)
            _ = try writer.wait()
        }

        @Test("the passphrase is one line of the FIFO, even if the writer keeps the FIFO open")
        func passphraseFIFOStaysOpen() throws {
            let path = folder.file("key")
            let right = folder.write("right", "correct horse\n")
            let made = try Tool.run("keygen", path, "--passphrase-file", right)
            try #require(made.status == 0)
            let fifo = folder.file("fifo")
            try #require(try Subprocess.run("mkfifo", ["-m", "600", fifo]).status == 0)
            // What follows the line stays in the FIFO, for the next reader.
            let writer = try Subprocess(
                "sh", ["-c", "{ cat \"$0\" \"$0\"; exec cat; } > \"$1\"", right, fifo],
                input: .keptOpen)
            let reader = unsafe open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
            defer { close(reader) }
            for _ in 0..<2 {
                let shown = try Tool.start(["pubkey", path, "--passphrase-file", fifo])
                    .wait(whileServing: [writer])
                #expect(shown.status == 0, "\(shown.errors)")
                #expect(shown.text == made.text)
            }
            writer.endInput()
            #expect(try writer.wait().status == 0)
        }

        @Test("--passphrase-prompt: keygen asks twice without echo, and pubkey asks once")
        func prompt() throws {
            let path = folder.file("key")
            let made = try terminal("keygen --passphrase-prompt '\(path)'", "horse\n", "horse\n")
            #expect(made.status == 0)
            #expect(made.text.contains("New passphrase for \(path): \r\nThe same again: \r\n"))
            #expect(made.text.contains("horse") == false)
            let shown = try terminal("pubkey --passphrase-prompt '\(path)'", "horse\n")
            #expect(shown.status == 0)
            #expect(shown.text.contains("Passphrase for \(path): \r\npublic-key: "))
            let wrong = try terminal("pubkey --passphrase-prompt '\(path)'", "house\n")
            #expect(wrong.status == 65)
            #expect(wrong.text.contains("the passphrase is wrong"))
        }

        @Test(
            "keygen --passphrase-prompt makes no key if the passphrases differ, the first is empty, or there is no terminal"
        )
        func promptFailures() throws {
            let path = folder.file("key")
            let differ = try terminal("keygen --passphrase-prompt '\(path)'", "horse\n", "house\n")
            #expect(differ.status == 65)
            #expect(differ.text.contains("the two passphrases differ"))
            let empty = try terminal("keygen --passphrase-prompt '\(path)'", "\n")
            #expect(empty.status == 65)
            #expect(empty.text.contains("no passphrase was given"))
            let noTerminal = try Subprocess.run(
                "setsid", ["-w", Tool.path, "keygen", "--passphrase-prompt", path])
            Tool.expect(noTerminal, status: 66, "there is no terminal to ask for the passphrase")
            #expect(folder.names == [])
        }

        @Test(
            "Ctrl-C at the question for a passphrase ends the command",
            arguments: [
                "pubkey KEY", "send NONE KEY --anyone --identity KEY",
                "receive NONE DIR --keep --anyone --identity KEY",
                "connect NONE --anyone --persist --identity KEY",
            ])
        func interruptedPrompt(_ command: String) throws {
            let path = folder.file("key")
            let right = folder.write("right", "horse\n")
            try #require(try Tool.run("keygen", path, "--passphrase-file", right).status == 0)
            let words = command.replacing("KEY", with: "'\(path)'")
                .replacing("NONE", with: "unix:'\(folder.file("none"))'")
                .replacing("DIR", with: "'\(folder.path)'")
            let interrupted = try terminal(words, "\u{3}")
            #expect(interrupted.status == 128 + SIGINT, "\(interrupted.text)")
        }

        @Test("without an option, the passphrase of an existing key is asked for at the terminal")
        func promptWithoutOption() throws {
            let path = folder.file("key")
            let right = folder.write("right", "horse\n")
            try #require(try Tool.run("keygen", path, "--passphrase-file", right).status == 0)
            let shown = try terminal("pubkey '\(path)' </dev/null", "horse\n")
            #expect(shown.status == 0)
            #expect(shown.text.contains("Passphrase for \(path): \r\npublic-key: "))
            let wrong = try terminal("pubkey '\(path)'", "house\n")
            #expect(wrong.status == 65)
            #expect(wrong.text.contains("the passphrase is wrong"), "\(wrong.text)")
            let object = try terminal("pubkey --json '\(path)'", "house\n")
            #expect(object.text.contains("\"code\": \"bad-key\""), "\(object.text)")
            let plain = folder.file("plain")
            let dialed = try terminal(
                "connect unix:\(folder.file("none")) --anyone --identity '\(path)'", "horse\n")
            #expect(dialed.status == 68, "\(dialed.text)")
            let made = try Subprocess.run(
                "script", ["-qec", "'\(Tool.path)' keygen '\(plain)'", "/dev/null"])
            #expect(made.status == 0, "\(made.text)")
            #expect(!made.text.contains("assphrase"), "keygen has asked for a passphrase")
        }

        @Test("keygen makes missing folders, so its manual page's example works for a new account")
        func newAccount() throws {
            let path = folder.file("home/.config/blesec/key")
            _ = try Subprocess.run("mkdir", ["-m", "755", folder.file("home")])
            let made = try Subprocess.run(
                "sh", ["-c", "umask 022; exec '\(Tool.path)' keygen '\(path)'"])
            #expect(made.status == 0, "\(made.errors)")
            for name in ["home/.config", "home/.config/blesec"] {
                #expect(folder.mode(name) == 0o700)
            }
            #expect(folder.mode("home/.config/blesec/key") == 0o600)
            #expect(try Tool.run("pubkey", path).text == made.text)
        }

        @Test("without --json, keygen says on standard error what to type on the other side")
        func nextSteps() throws {
            let made = try Tool.run("keygen", folder.file("key"))
            let line = try #require(made.text.split(separator: "\n").last)
            let fingerprint = line.dropFirst("fingerprint: ".count)
            for command in ["listen l2cap:any", "connect ENDPOINT"] {
                #expect(
                    made.errors.contains(
                        "  blesec \(command) --identity KEY --peer \(fingerprint)\n"))
            }
            #expect(made.errors.contains("`blesec pair --name NAME` here"))
            #expect(made.errors.contains("`blesec pair --name NAME --code DIGITS` on the other"))
            #expect(try Tool.run("keygen", folder.file("other"), "--json").errors == "")
        }

        @Test("keygen and listen have the same error for a folder that others can change")
        func sameRefusal() throws {
            try #require(try Tool.run("keygen", folder.file("open/key")).status == 0)
            _ = try Subprocess.run("chmod", ["777", folder.file("open")])
            let path = folder.file("open/key")
            let reason =
                "\(path) cannot be trusted: \(folder.file("open")) can be changed by others (mode "
                + "777): run `chmod go-w \(folder.file("open"))`"
            let listened = try Tool.run(
                "listen", "unix:\(folder.file("s"))", "--anyone", "--identity", path)
            Tool.expect(listened, status: 65, "blesec: \(reason)\n")
            _ = try Subprocess.run("rm", [path])
            Tool.expect(try Tool.run("keygen", path), status: 65, "blesec: \(reason)\n")
            #expect(folder.names == ["open"])
            #expect(folder.mode("open/key") == nil)
        }

        @Test("keygen needs no permission to list the folder of the key")
        func unlistedFolder() throws {
            try #require(unsafe mkdir(folder.file("closed"), 0o300) == 0)
            defer { unsafe chmod(folder.file("closed"), 0o700) }
            let script = """
                test "$(id -u)" = 0 || exec "$0" keygen "$1"
                chown 65534 "${1%/*}" && chmod 0711 "${1%/*}/.." &&
                exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0" keygen "$1"
                """
            let made = try Subprocess.run(
                "sh", ["-c", script, Tool.path, folder.file("closed/key")])
            #expect(made.status == 0, "\(made.errors)")
        }

        @Test("keygen makes no folder below a file, in /proc, or below another user's folder")
        func unusableFolder() throws {
            let file = folder.write("file", "")
            Tool.expect(
                try Tool.run("keygen", file + "/a/key"), status: 73, "key cannot be created: ")
            Tool.expect(
                try Tool.run("keygen", "/proc/none/key"), status: 73, "cannot be created")
            // Only root can give a folder away.
            guard geteuid() == 0 else { return }
            try #require(unsafe mkdir(folder.file("theirs"), 0o755) == 0)
            try #require(unsafe chown(folder.file("theirs"), 65_534, 65_534) == 0)
            Tool.expect(
                try Tool.run("keygen", folder.file("theirs/a/b/key")), status: 73,
                "theirs belongs to another user: make the folder first")
            #expect(folder.names == ["file", "theirs"])
        }

        @Test("an interrupted prompt leaves no key, and restores the terminal's echo")
        func echoAfterInterrupt() throws {
            let path = folder.file("key")
            // Control-C (0x03) interrupts the tool and its shell. The trap keeps the shell running,
            // so that it prints the tool's status and the terminal's settings.
            let outcome = try terminal(
                "keygen --passphrase-prompt '\(path)'; echo $?; stty -a", "hor\u{03}",
                before: "trap : INT; ")
            #expect(outcome.text.contains("130\r\n"))
            #expect(outcome.text.contains(" echo "))
            #expect(outcome.text.contains("-echo ") == false)
            #expect(folder.names == [])
        }

        @Test("Ctrl-Z and Ctrl-\\ are characters of a passphrase, and do not stop the command")
        func charactersOfPassphrase() throws {
            let path = folder.file("key")
            let typed = "ho\u{1A}r\u{1C}se\n"
            let made = try terminal("keygen --passphrase-prompt '\(path)'", typed, typed)
            #expect(made.status == 0, "\(made.text)")
            let shown = try Tool.run(
                "pubkey", path, "--passphrase-file", folder.write("passphrase", typed))
            #expect(shown.status == 0, "\(shown.errors)")
        }

        @Test("each bad key file has its own reason, and exit status 65 or 66")
        func badKeyFiles() throws {
            let path = folder.file("key")
            try #require(try Tool.run("keygen", path).status == 0)
            let missing = folder.file("missing")
            Tool.expect(try Tool.run("pubkey", missing), status: 66, "\(missing): no such file")
            Tool.expect(try Tool.run("pubkey", folder.path), status: 65, "is a directory")
            let script = #"cat "$1" | "$0" pubkey /dev/stdin"#
            let pipe = try Subprocess.run("sh", ["-c", script, Tool.path, path])
            Tool.expect(pipe, status: 65, "/dev/stdin is a pipe or a socket, and not a file")
            let text = folder.write("text", "hello\n")
            Tool.expect(try Tool.run("pubkey", text), status: 65, "is not a PEM file")
            let shared = folder.write("shared", try #require(folder.read("key")), mode: 0o644)
            Tool.expect(try Tool.run("pubkey", shared), status: 65, "run `chmod 600 \(shared)`")
            let publicKey = folder.file("public")
            let command = "umask 077; openssl pkey -in '\(path)' -pubout > '\(publicKey)'"
            try #require(try Subprocess.run("sh", ["-c", command]).status == 0)
            Tool.expect(try Tool.run("pubkey", publicKey), status: 65, "holds a public key")
        }

        @Test("a key file without read permission is reported with 'Permission denied'")
        func denied() throws {
            folder.write("key", "", mode: 0)
            // Root may open any file. If the test runs as root, the tool runs as another user.
            let words = [Tool.path, "pubkey", folder.file("key")]
            let command =
                #"[ "$(id -u)" = 0 ] && exec setpriv --reuid=65534 --clear-groups "$@"; exec "$@""#
            try #require(try Subprocess.run("chmod", ["711", folder.path]).status == 0)
            let outcome = try Subprocess.run("sh", ["-c", command, "sh"] + words)
            Tool.expect(outcome, status: 77, "cannot be opened: Permission denied")
        }

        @Test("a key owned like a systemd credential is read, and another user's key is not")
        func credential() throws {
            let key = folder.file("key")
            #expect(try Tool.run("keygen", key).status == 0)
            try #require(unsafe chmod(folder.path, 0o711) == 0)
            // A systemd credential is a file that root owns and the service's user can read. Only
            // root can make such a file; if the test runs as another user, the tool reads its own
            // key.
            let script = #"""
                if [ "$(id -u)" != 0 ]; then exec "$1" pubkey "$2"; fi
                chown 0:65534 "$2" && chmod 0440 "$2" || exit 1
                setpriv --reuid=65534 --regid=65534 --clear-groups "$1" pubkey "$2" || exit 1
                chown 65534 "$2" && chmod 0400 "$2" || exit 1
                "$1" pubkey "$2" 2>&1 && exit 1
                exit 0
                """#
            let outcome = try Subprocess.run("sh", ["-c", script, "sh", Tool.path, key])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.text.hasPrefix("public-key: "))
            if geteuid() == 0 {
                #expect(outcome.text.contains("\(key) belongs to another user (65534)"))
            }
        }

        /// Runs the tool at a terminal of its own, and types one of the inputs at each prompt; a
        /// prompt ends with a colon. The terminal's shell executes `before` first.
        private func terminal(
            _ command: String, _ inputs: String..., before: String = ""
        ) throws -> Subprocess.Outcome {
            let script = try Subprocess(
                "script", ["-qec", "\(before)'\(Tool.path)' \(command)", "/dev/null"],
                input: .keptOpen)
            var seen = 0
            for input in inputs {
                seen = try script.output(containing: ": ", after: seen)
                script.send(Array(input.utf8))
            }
            return try script.wait()
        }
    }
}
