import TestSupport
import Testing

extension Integration {
    /// How the tool handles its arguments, before any command acts.
    @Suite struct CommandLineTests {
        let folder = ScratchFolder()

        @Test(
            "a wrong command line gives one line with the remedy, and exit status 64",
            arguments: [
                ([], "a command is missing: keygen"),
                (
                    ["keygne"],
                    "unknown command `keygne`: did you mean `keygen`?; see `blesec --help`"
                ),
                (["frobnicate"], "unknown command `frobnicate`; see `blesec --help`"),
                (["--versoin"], "unknown option `--versoin`: did you mean `--version`?"),
                (["keygen"], "FILE is missing; see `blesec keygen --help`"),
                (["keygen", "--"], "FILE is missing"),
                (["keygen", ""], "FILE is empty"),
                (["keygen", "a", "b"], "unexpected argument `b`"),
                (
                    ["keygen", "--curv", "x448", "a"],
                    "unknown option `--curv`: did you mean `--curve`?"
                ),
                (["keygen", "-c", "x448", "a"], "unknown option `-c`;"),
                (["keygen", "--json=1", "a"], "--json takes no value"),
                (["keygen", "a", "--curve"], "--curve needs a value: `--curve CURVE`"),
                (["keygen", "--curve", "--hash", "a"], "--curve needs a value"),
                (["keygen", "--curve", "x448", "--curve=x448", "a"], "--curve is given twice"),
                (["keygen", "--curve", "p256", "a"], "--curve is x25519 or x448, and not `p256`"),
                (["keygen", "--curve=", "a"], "the value of --curve is empty; see"),
                (["help", "--mdoc", ""], "the value of --mdoc is empty; see `blesec help --help`"),
                (["listen", "unix:a", "-i", ""], "the value of -i is empty; see"),
                (["connect", "unix:a", "--state", ""], "the value of --state is empty; see"),
                (["connect", "unix:a", "--store", ""], "the value of --store is empty; see"),
                (["connect", "unix:a", "--peer="], "the value of --peer is empty; see"),
                (
                    ["keygen", "--hash", "sha256", "a"],
                    "--hash is SHA256, SHA512, BLAKE2s or BLAKE2b"
                ),
                (
                    ["keygen", "--passphrase-prompt", "--passphrase-file", "f", "a"],
                    "--passphrase-file and --passphrase-prompt exclude each other"
                ),
                (["pubkey", "--curve", "x448", "a"], "unknown option `--curve`"),
                (
                    ["--persist"],
                    "--persist goes after a command, such as `blesec listen --persist`; see"
                ),
                (["listen", "-vq", "unix:a"], "--verbose and --quiet exclude each other"),
                (["listen", "-vx", "unix:a"], "unknown option `-x` in `-vx`"),
                (["listen", "unix:a", "-i"], "-i needs a value: `-i FILE`"),
                (["listen", "unix:a", "-ia", "-i", "b"], "-i is given twice"),
                (
                    ["receive", "peer:lamp", "/tmp", "--listen", "--anyone"],
                    "--listen waits at an endpoint, and not at peer:lamp: name the endpoint"
                ),
                (
                    [
                        "pair", "unix:a", "--listen", "--name", "x", "--state", "/nowhere",
                        "--timeout", "600",
                    ],
                    "--timeout is longer than the 120 seconds for which a code is valid; see"
                ),
                (["pair", "--name", "x", "--code="], "the value of --code is empty; see"),
                (["pair", "--name", "x", "--uri="], "the value of --uri is empty; see"),
                (["completion", "zsh"], "there is a script for bash only, not `zsh`"),
                (
                    ["connect", "service:180F", "--anyone", "--transport", "radio"],
                    "--transport is l2cap, gatt or any, and not `radio`"
                ),
            ])
        func usage(_ arguments: [String], _ reason: String) throws {
            Tool.expect(try Subprocess.run(Tool.path, arguments), status: 64, reason)
        }

        @Test("an argument that is not UTF-8 is a usage error, and makes no file")
        func invalidBytes() throws {
            let script = #"exec "$1" keygen "$2$(printf '\376')""#
            let outcome = try Subprocess.run(
                "sh", ["-c", script, "sh", Tool.path, folder.file("key")])
            Tool.expect(
                outcome, status: 64, "argument 2 is not UTF-8: `\(folder.file("key"))\u{FFFD}`")
            #expect(folder.names == [])
        }

        @Test("an unknown option of 100,000 characters is a usage error")
        func longOption() throws {
            let name = String(repeating: "x", count: 100_000)
            let outcome = try Tool.run("keygen", "--" + name)
            #expect(outcome.status == 64)
        }

        @Test(
            "a tool may use as many descriptors as the hard limit allows, whatever the soft limit")
        func descriptorLimit() throws {
            let identity = folder.file("identity")
            #expect(try Tool.run("keygen", identity).status == 0)
            // Prints both limits of the listening tool, once they are equal or 10 s have passed.
            let script = """
                ulimit -S -n 40
                "$@" >/dev/null 2>&1 & tool=$!
                for i in $(seq 200); do
                  limits=$(awk '/Max open files/ { print $4, $5 }' /proc/$tool/limits)
                  set -- $limits
                  [ "$1" = "$2" ] && break
                  sleep 0.05
                done
                kill $tool
                echo $limits
                """
            let words = [
                "listen", "unix:\(folder.file("socket"))", "--identity", identity, "--anyone",
            ]
            let outcome = try Subprocess.run("sh", ["-c", script, "sh", Tool.path] + words)
            let limits = outcome.text.split(whereSeparator: \.isWhitespace)
            #expect(limits.count == 2 && limits.first == limits.last && limits.first != "40")
        }

        @Test("without descriptors for its event loop, the tool says which limit to raise")
        func noDescriptors() throws {
            let script = #"ulimit -c 0; ulimit -n 4; exec "$0" pubkey key"#
            let outcome = try Subprocess.run("sh", ["-c", script, Tool.path])
            #expect(outcome.status != 0)
            #expect(
                outcome.errors.contains("no descriptors left for an event loop: raise `ulimit -n`"),
                "\(outcome.errors)")
        }

        @Test("`blesec --help` lists the commands, and each command has a manual page")
        func manualPages() throws {
            let overview = try Tool.run("--help")
            #expect(overview.status == 0)
            #expect(overview.errors == "")
            for command in [
                "keygen", "pubkey", "listen", "connect", "pair", "send", "receive", "chat",
                "forward", "outbox", "scan", "doctor", "vectors", "peers list", "peers show",
                "peers rename", "peers forget",
            ] {
                let words = command.split(separator: " ").map(String.init)
                let entries = overview.text.split(separator: "\n").filter {
                    $0.hasPrefix("       \(words[0])")
                }
                #expect(entries.count == 1)
                let page = try Tool.run(arguments: words + ["--help"])
                #expect(page.status == 0)
                let headings = page.text.split(separator: "\n").filter { !$0.hasPrefix(" ") }
                #expect(
                    headings == [
                        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES",
                    ])
                #expect(page.text.contains("NAME\n       blesec \(command) - "))
                let lines = page.text.split(separator: "\n")
                // An example is one line, whatever its length.
                #expect(
                    lines.allSatisfy {
                        ($0.count <= 80 || $0.hasPrefix("       blesec ")) && $0.last != " "
                    })
                let options = lines.filter { $0.hasPrefix("       --") }
                #expect(Set(options).count == options.count, "no option is listed twice")
            }
        }

        @Test(
            "the lines of help fill the terminal's width, up to 100 columns", arguments: [60, 300])
        func terminalWidth(_ columns: Int) throws {
            let command = "stty cols \(columns); '\(Tool.path)' keygen --help"
            let outcome = try Subprocess.run("script", ["-qec", command, "/dev/null"])
            try #require(outcome.status == 0)
            let longest = outcome.text.split(whereSeparator: \.isNewline).map(\.count).max() ?? 0
            #expect(longest <= min(columns, 100))
            #expect(longest > min(columns, 100) - 10)
        }

        @Test("help succeeds even if other arguments are wrong", arguments: ["--help", "-h"])
        func helpWins(_ help: String) throws {
            #expect(try Tool.run("keygen", help, "--nonsense").status == 0)
            #expect(try Tool.run(help).status == 0)
        }

        @Test("the version is printed as one line")
        func version() throws {
            for words in [["--version"], ["-V"], ["keygen", "--version"], ["keygen", "-V"]] {
                let outcome = try Tool.run(arguments: words)
                #expect(outcome.status == 0)
                #expect(outcome.text.hasPrefix("blesec "))
                #expect(outcome.text.filter { $0 == "\n" }.count == 1)
            }
        }

        @Test("control characters are escaped in errors")
        func escapes() throws {
            let outcome = try Tool.run("pubkey", folder.file("a\nb\u{1B}[2J\u{202E}"))
            Tool.expect(outcome, status: 66, "a\\u{A}b\\u{1B}[2J\\u{202E}: no such file")
        }

        @Test(
            "output to a full disk, a closed pipe or a closed descriptor gives exit status 74")
        func standardOutput() throws {
            let full = try Tool.run("--help", output: "/dev/full")
            Tool.expect(full, status: 74, "standard output cannot be written: No space left")
            let closed = try Subprocess.run("sh", ["-c", "'\(Tool.path)' --help >&-; echo $?"])
            #expect(closed.text == "74\n")
            let pipeline = "trap '' PIPE; { '\(Tool.path)' --help; echo $? >&2; } | true"
            // If `true` ends only after the tool has written the page, the pipe has taken the whole
            // page, and the exit status is 0.
            let piped = try Subprocess.run("sh", ["-c", pipeline])
            #expect(piped.errors.hasSuffix("74\n") || piped.errors == "0\n")
        }

        @Test(
            "output beyond the limit on the size of a file gives exit status 74",
            arguments: ["--help", "--version", "keygen --help", "help concepts"])
        func fileSizeLimit(_ words: String) throws {
            let script = #"ulimit -f 0; exec "$1" $2 > "$3""#
            let outcome = try Subprocess.run(
                "sh", ["-c", script, "sh", Tool.path, words, folder.file("page")])
            Tool.expect(outcome, status: 74, "standard output cannot be written: File too large")
        }
    }
}
