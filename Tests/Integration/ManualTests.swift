import BLESecChannelCore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// The manual pages, and what bash completes.
    @Suite struct ManualTests {
        private let folder = ScratchFolder()

        @Test("`help COMMAND` shows the page that `COMMAND --help` shows")
        func help() throws {
            for words in [[], ["listen"], ["ca"], ["ca", "init"], ["peers", "list"], ["help"]] {
                let page = try Tool.run(arguments: ["help"] + words)
                #expect(page.status == 0)
                #expect(page.text == (try Tool.run(arguments: words + ["--help"])).text)
            }
            let concepts = try Tool.run("help", "concepts")
            #expect(concepts.text.contains("ENDPOINTS\n"))
        }

        /// The words of a page, with one blank between them.
        private func words(of page: String) throws -> String {
            let outcome = try Tool.run("help", page)
            try #require(outcome.status == 0, "\(outcome.errors)")
            return outcome.text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        }

        @Test("wrong statements of former pages about the options of `pair` have not come back")
        func pairing() throws {
            #expect(try !words(of: "concepts").contains("--code`"))
            let page = try words(of: "pair")
            #expect(
                page.contains("A longer time is allowed only with the other side's invitation."))
            for wrong in ["for this run alone", "waits for ever", "2 if any peer", "any code"] {
                #expect(!page.contains(wrong), "\(wrong)")
            }
        }

        @Test("the page of `listen` says at which adapters a listener waits")
        func adapters() throws {
            let page = try words(of: "listen")
            #expect(page.contains("By default l2cap:any stands for all adapters"))
            #expect(page.contains("Wait for one peer at all Bluetooth adapters."))
        }

        @Test("the pages say who can dial a Unix socket, and that a chat needs the same user there")
        func unixSockets() throws {
            let concepts = try words(of: "concepts")
            #expect(concepts.contains("Only the user who listens there, and root, can dial it."))
            let page = try words(of: "chat")
            #expect(page.contains("with another program of the same user on this machine."))
            #expect(!page.contains("two users"))
        }

        @Test("the page of `chat` says that each piece of a long line counts as a line")
        func pieces() throws {
            let page = try words(of: "chat")
            #expect(page.contains("of at most 16,384 bytes, and each piece counts as a line."))
        }

        @Test("a synopsis shows an option together with the option that it needs")
        func neededOption() throws {
            let page = try words(of: "vectors")
            #expect(page.contains(" [--make N --seed S] "))
            #expect(!page.contains("[--seed S]"))
        }

        @Test(
            "`help` refuses wrong words, and suggests the page with a similar name",
            arguments: [
                (["lisen"], "there is no page on `lisen`: did you mean `listen`?"),
                (["ca", "isue"], "there is no page on `isue`: did you mean `issue`?"),
                (["frobnicate"], "there is no page on `frobnicate`; see"),
                (["listen", "more"], "unexpected argument `more`"), ([""], "COMMAND is empty"),
                (["ca", "init", "more"], "unexpected argument `more`; see `blesec ca --help`"),
                (["--mdoc"], "--mdoc needs a value"),
                (["--mdoc", "/", "listen"], "unexpected argument `listen` with --mdoc"),
            ])
        func noPage(_ words: [String], _ reason: String) throws {
            let outcome = try Tool.run(arguments: ["help"] + words)
            #expect(outcome.status == 64)
            #expect(outcome.errors.contains(reason))
        }

        @Test("the pages for `man` have no fault that mandoc finds")
        func mdoc() throws {
            let pages = folder.file("pages")
            let script = """
                mkdir '\(pages)' && export SOURCE_DATE_EPOCH=1000000000
                '\(Tool.path)' help --mdoc '\(pages)' && '\(Tool.path)-bench' help --mdoc '\(pages)'
                cd '\(pages)' && ls | wc -l && grep -L '^[.]Dd September 9, 2001$' *; mandoc -T lint *
                """
            let outcome = try Subprocess.run("sh", ["-c", script])
            // mandoc looks only among the installed pages for a page that another page refers to.
            let lines = outcome.text.split(separator: "\n")
                .filter { !$0.contains("referenced manual not found") }
            #expect(lines.dropFirst() == [])
            #expect(lines.first.flatMap { Int($0) } ?? 0 > 30)
            #expect(outcome.errors == "")
            let shown = try Subprocess.run(
                "sh", ["-c", "mandoc -T ascii '\(pages)/blesec-listen.1' | sed 's/.\\x08//g'"])
            #expect(shown.text.contains("-i, --identity FILE"))
            #expect(shown.text.contains("blesec-listen"))
        }

        @Test("pages that cannot be written are an error, with exit status 73")
        func unwritable() throws {
            let outcome = try Tool.run("help", "--mdoc", folder.file("missing"))
            Tool.expect(outcome, status: 73, "blesec.1 cannot be created: No such file")
        }

        @Test("the error for a page that does not fit on the disk names the page")
        func fullDisk() throws {
            try #require(unsafe symlink("/dev/full", folder.file("blesec-listen.1")) == 0)
            let outcome = try Tool.run("help", "--mdoc", folder.path)
            Tool.expect(
                outcome, status: 74, "blesec-listen.1 cannot be written: No space left on device")
        }

        @Test("the pages can have the latest date that the C library knows")
        func latestDate() throws {
            let outcome = try Subprocess.run(
                Tool.path, ["help", "--mdoc", folder.path],
                environment: ["SOURCE_DATE_EPOCH": "67768036191676799"])
            #expect(outcome.status == 0, "\(outcome.errors)")
            let page = String(decoding: folder.read("blesec.1") ?? [], as: UTF8.self)
            #expect(page.contains(".Dd December 31, 2147485547\n"), "\(page.prefix(100))")
        }

        @Test(
            "a SOURCE_DATE_EPOCH that is no time is a usage error, and no page is written",
            arguments: ["", "abc", "67768036191676800"])
        func unusableDate(_ date: String) throws {
            let outcome = try Subprocess.run(
                Tool.path, ["help", "--mdoc", folder.path],
                environment: ["SOURCE_DATE_EPOCH": date])
            Tool.expect(outcome, status: 64, "SOURCE_DATE_EPOCH is a number of seconds since 1970")
            #expect(folder.names == [])
        }

        @Test(
            "the pages of scan and keygen list the statuses of deadlines and of denied permission")
        func statuses() throws {
            #expect(try words(of: "scan").contains(" 75 A deadline passed. 76 "))
            #expect(try words(of: "keygen").contains(" 77 The peer is not trusted, or the system "))
        }

        /// What bash offers for the last word of a line.
        private func completions(_ line: String, state: String? = nil) throws -> [String] {
            let script = """
                PATH="$(dirname '\(Tool.path)'):$PATH"
                source <('\(Tool.path)' completion bash)
                COMP_LINE="$1" COMP_POINT=${#1}
                _blesec 2>&1
                printf '%s\\n' "${COMPREPLY[@]}"
                """
            let outcome = try Subprocess.run(
                "bash", ["-c", script, "bash", line],
                environment: ["XDG_STATE_HOME": state ?? "/nowhere"])
            #expect(outcome.errors == "")
            return outcome.text.split(separator: "\n").map(String.init)
        }

        @Test(
            "bash completes commands, options and their values",
            arguments: [
                ("blesec lis", ["listen"]), ("blesec ca i", ["init", "issue"]),
                ("blesec peers ren", ["rename"]), ("blesec keygen --cu", ["--curve"]),
                ("blesec keygen --curve ", ["x25519", "x448"]),
                ("blesec keygen --curve x4", ["x448"]),
                ("blesec keygen --hash=BLAKE2b", ["BLAKE2b"]),
                ("blesec outbox /tmp l", ["list"]), ("blesec completion ", ["bash"]),
                (#"blesec outbox "/a b" l"#, ["list"]), (#"blesec outbox '/a b' l"#, ["list"]),
                (#"blesec outbox /a\ b l"#, ["list"]), (#"blesec "outbox" /a l"#, ["list"]),
                ("blesec help lis", ["listen"]), ("blesec help con", ["connect", "concepts"]),
                ("blesec help peers ren", ["rename"]), ("blesec help listen ", []),
                ("blesec listen --transport g", ["gatt"]),
                ("blesec connect un", ["unix:", "unix-seqpacket:"]),
                ("blesec connect -i nothing pee", ["peer:"]), ("blesec frobnicate ", []),
                ("blesec listen --service x unix:/nowhere/", []), ("blesec connect a b ", []),
                ("blesec --ver", ["--version"]), ("blesec listen -- --ver", []),
            ])
        func completion(_ line: String, _ words: [String]) throws {
            #expect(try completions(line) == words)
        }

        @Test("bash completes files, folders and the names of remembered peers")
        func files() throws {
            _ = try Subprocess.run(
                "mkdir", ["-m", "700", "-p", folder.file("sub/inner"), folder.file("state/blesec")])
            folder.write("sub/one", "")
            let sub = folder.file("sub")
            #expect(try completions("blesec pubkey \(sub)/o") == ["\(sub)/one"])
            #expect(try completions("blesec ca init \(sub)/") == ["\(sub)/inner"])
            #expect(try completions("blesec connect unix:\(sub)/o") == ["\(sub)/one"])
            #expect(try completions("blesec pubkey --passphrase-file=\(sub)/o") == ["\(sub)/one"])
            folder.write("sub/q=r", "")
            #expect(try completions("blesec connect unix:\(sub)/q=") == ["r"])
            #expect(try completions("blesec pubkey --passphrase-file=\(sub)/q=") == ["r"])
            let key = Fingerprint(subjectPublicKeyInfo: [1])
            folder.write("state/blesec/known_peers", "lamp \(key)\n")
            let state = folder.file("state")
            #expect(try completions("blesec peers show ", state: state) == ["lamp"])
            #expect(try completions("blesec connect peer:", state: state) == ["lamp"])
        }

        /// The argument that `blesec` gets if `typed` is typed in an interactive bash, and completed by
        /// the Tab key. The folder is the working directory.
        private func argument(completing typed: String, after words: String) throws -> String {
            let shell = try Subprocess(
                "script", ["-qec", "bash --norc --noprofile -i", "/dev/null"], input: .keptOpen,
                environment: ["HOME": folder.path, "TERM": "dumb"])
            let setup = """
                cd '\(folder.path)'; source <('\(Tool.path)' completion bash)
                blesec() { printf '[%s]\\n' "${@: -1}" >argument; }; echo re''ady

                """
            shell.send(Array(setup.utf8))
            try shell.output(containing: "ready\r\n")
            shell.send(Array("blesec \(words) \(typed)\t\nexit\n".utf8))
            _ = try shell.wait()
            return String(decoding: folder.read("argument") ?? [], as: UTF8.self)
        }

        @Test(
            "bash completes a word with quotes or backslashes only to the file whose name begins with that word",
            arguments: [
                (#"my\ fi"#, "my file"), (#""my fi"#, "my file"), ("'my fi", "my file"),
                (#"it\'"#, "it's"), (#""it'"#, "it's"), (#"q\"u"#, #"q"uote"#),
                ("plai", "plain"),
            ])
        func quotedFiles(_ typed: String, _ name: String) throws {
            // A completion that ignores the quotes and backslashes would find `fire` or `its`.
            for name in ["my file", "fire", "it's", "its", #"q"uote"#, "plain"] {
                folder.write(name, "")
            }
            #expect(try argument(completing: typed, after: "pubkey") == "[\(name)]\n")
        }

        @Test("bash does not complete a part of a word with quotes or backslashes")
        func partOfWord() throws {
            folder.write("my file", "")
            folder.write("fire", "")
            let found = try argument(completing: #"unix:my\ fi"#, after: "connect")
            #expect(found == "[unix:my fi]\n")
        }

        @Test("completion quotes shell code in a name, and does not run the code")
        func quoted() throws {
            let sub = folder.file("sub")
            _ = try Subprocess.run("mkdir", ["-m", "700", "-p", sub, folder.file("state/blesec")])
            folder.write("sub/a $(>b)", "")
            #expect(try completions("blesec connect unix:\(sub)/a") == [#"\#(sub)/a\ \$\(\>b\)"#])
            let trap = folder.file("trap")
            let key = Fingerprint(subjectPublicKeyInfo: [1])
            folder.write("state/blesec/known_peers", "$(>\(trap)) \(key)\n* \(key)\n")
            for line in ["peers show ", "connect peer:"] {
                let words = try completions("blesec " + line, state: folder.file("state"))
                #expect(words == [#"\$\(\>\#(trap)\)"#, #"\*"#])
            }
            #expect(folder.read("trap") == nil)
        }

        @Test("broken files of remembered peers are no error in completion")
        func brokenState() throws {
            _ = try Subprocess.run("mkdir", ["-m", "700", "-p", folder.file("state/blesec")])
            folder.write("state/blesec/known_peers", "\u{0}nonsense\n")
            #expect(try completions("blesec peers show ", state: folder.file("state")) == [])
        }
    }
}
