import TestSupport
import Testing

extension Integration {
    /// `blesec vectors`: its output and its exit status.
    @Suite struct VectorsCommandTests {
        let folder = ScratchFolder()

        private static let vectorsFolder = #filePath.replacing(
            "Tests/Integration/VectorsCommandTests.swift", with: "TestVectors")
        private static let python = #filePath.replacing(
            "Tests/Integration/VectorsCommandTests.swift", with: ".build/venv/bin/python")
        private static let nn = "Noise_NN_25519_ChaChaPoly_SHA256"

        /// The text of a file with new vectors of `NN`.
        private func generate(_ count: Int, seed: Int = 1) throws -> String {
            let outcome = try Tool.run(
                "vectors", "--make", "\(count)", "--seed", "\(seed)", "--protocol", Self.nn)
            try #require(outcome.status == 0, "\(outcome.errors)")
            return outcome.text
        }

        @Test("files and folders of vectors are run, and only the counts are printed")
        func passes() throws {
            folder.write("b.txt", try generate(2))
            folder.write("a.json", try generate(3))
            folder.write("README.md", "not vectors")
            let file = Self.vectorsFolder + "/noise/one-way.json"
            let outcome = try Tool.run("vectors", file, folder.path)
            #expect(outcome.status == 0)
            #expect(outcome.text == "53 passed, 0 failed, 0 skipped\n")
            #expect(outcome.errors == "")
        }

        @Test("a failing vector gives a line with protocol, message and first differing byte")
        func fails() throws {
            let vectors = try generate(3)
            // `lines[0]` opens the file, so `lines[2]` has `vectors[1]`. `parts[3]` begins with the
            // ciphertext of `messages[2]`, the vector's first transport message. The digit at the
            // offset 4 belongs to byte 2.
            var lines = vectors.split(separator: "\n").map(String.init)
            var parts = lines[2].split(separator: "\"ciphertext\":\"").map(String.init)
            let digit = parts[3].prefix(5).last == "0" ? "1" : "0"
            let digitIndex = parts[3].index(parts[3].startIndex, offsetBy: 4)
            parts[3].replaceSubrange(digitIndex...digitIndex, with: digit)
            lines[2] = parts.joined(separator: "\"ciphertext\":\"")
            let path = folder.write("changed.json", lines.joined(separator: "\n"))
            let outcome = try Tool.run("vectors", path)
            #expect(outcome.status == 65)
            #expect(outcome.errors == "")
            let printed = outcome.text.split(separator: "\n", omittingEmptySubsequences: false)
            try #require(printed.count == 3 && printed[2] == "")
            #expect(
                printed[0].hasPrefix(
                    "\(path): vectors[1]: \(Self.nn): failed: message 2: byte 2: "))
            #expect(printed[1] == "2 passed, 1 failed, 0 skipped")
            let json = try Tool.run("vectors", "--json", path)
            #expect(json.status == 65)
            #expect(json.text.contains(#""vector": 1, "protocol": "\#(Self.nn)", "message": 2,"#))
            #expect(
                json.text.hasSuffix(
                    #"{"event": "done", "passed": 2, "failed": 1, "skipped": 0}"# + "\n"))
        }

        @Test("a vector of an unknown protocol is skipped, and listed with --verbose")
        func skips() throws {
            let vectors = try generate(2).replacing(
                Self.nn, with: "Noise_NN_25519_ChaChaPoly_SHA3", maxReplacements: 1)
            let path = folder.write("some.json", vectors)
            let outcome = try Tool.run("vectors", path)
            #expect(outcome.status == 0)
            #expect(outcome.text == "1 passed, 0 failed, 1 skipped\n")
            let verbose = try Tool.run("vectors", "--verbose", path)
            #expect(verbose.status == 0)
            #expect(
                verbose.text.hasPrefix(
                    "\(path): vectors[0]: Noise_NN_25519_ChaChaPoly_SHA3: skipped: unknown hash"))
            #expect(verbose.text.hasSuffix("\n1 passed, 0 failed, 1 skipped\n"))
        }

        @Test("if no vector could be run, the tool exits with 65")
        func nothing() throws {
            let path = folder.write(
                "skipped.json", try generate(1).replacing(Self.nn, with: "Noise_QQ_1_2_3"))
            let outcome = try Tool.run("vectors", path)
            #expect(outcome.status == 65)
            #expect(outcome.text == "0 passed, 0 failed, 1 skipped\n")
            #expect(outcome.errors.contains("nothing was run"))
            let empty = try Tool.run("vectors", folder.write("empty.json", #"{"vectors":[]}"#))
            #expect(empty.status == 65)
            #expect(empty.text == "0 passed, 0 failed, 0 skipped\n")
        }

        @Test(
            "a malformed file is an error that names file and place, even if other files are valid"
        )
        func malformed() throws {
            let validPath = folder.write("good.json", try generate(1))
            let cutPath = folder.write("cut.json", String(try generate(1).dropLast(9)))
            Tool.expect(
                try Tool.run("vectors", validPath, cutPath), status: 65,
                "\(cutPath): line 2, column")
            let oddPath = folder.write(
                "odd.json", try generate(2).replacing(#""payload":""#, with: #""payload":"f"#))
            Tool.expect(
                try Tool.run("vectors", oddPath), status: 65,
                "\(oddPath): vectors[0].messages[0].payload: an odd number of hexadecimal digits")
            Tool.expect(
                try Tool.run("vectors", Self.vectorsFolder + "/primitives.json"), status: 65,
                "vectors: missing")
            Tool.expect(try Tool.run("vectors", folder.file("none")), status: 66, "no such file")
        }

        @Test("text in a file cannot forge an output line")
        func forgery() throws {
            let vectors = try generate(2).replacing(
                Self.nn, with: #"x\n9 passed, 0 failed, 0 skipped"#, maxReplacements: 1)
            let outcome = try Tool.run("vectors", "--verbose", folder.write("x.json", vectors))
            #expect(outcome.text.filter { $0 == "\n" }.count == 2)
            #expect(outcome.text.contains("x\\u{A}9 passed"))
        }

        @Test(
            "progress is shown on a terminal, unless TERM is `dumb`, empty or not set",
            arguments: [("TERM=xterm", true), ("TERM=dumb", false), ("TERM=", false), ("", false)])
        func progress(_ variable: String, _ isShown: Bool) throws {
            let command =
                "\(variable) '\(Tool.path)' vectors '\(Self.vectorsFolder)/noise/one-way.json'"
            let terminal = try Subprocess.run("script", ["-qec", command, "/dev/null"])
            #expect(terminal.text.contains("100% ") == isShown)
            #expect(terminal.text.contains("\u{1B}") == isShown)
            #expect(terminal.text.hasSuffix("48 passed, 0 failed, 0 skipped\r\n"))
        }

        @Test(
            "a wrong command line is an error that says what is wrong",
            arguments: [
                (["vectors"], "what to run is missing"),
                (["vectors", ""], "is empty"),
                (["vectors", "--seed", "1", "x"], "--seed goes with --make"),
                (["vectors", "--make", "1"], "--make needs --seed"),
                (
                    ["vectors", "--make", "0", "--seed", "1"],
                    "--make is a number from 1 to 10000000"
                ),
                (["vectors", "--make", "+1", "--seed", "1"], "and not `+1`"),
                (["vectors", "--make", "1", "--seed", "0x1"], "--seed is a number"),
                (["vectors", "--make", "1", "--seed", "1", "x"], "--make writes vectors"),
                (
                    ["vectors", "--make", "1", "--seed", "1", "--protocol", "Noise_XX"],
                    "--protocol Noise_XX: not a protocol name"
                ),
            ])
        func usage(_ arguments: [String], _ reason: String) throws {
            Tool.expect(try Tool.run(arguments: arguments), status: 64, reason)
        }

        @Test("--make with --json is a usage error, and makes nothing")
        func makeJSON() throws {
            let outcome = try Tool.run("vectors", "--make", "1", "--seed", "1", "--json")
            #expect(outcome.status == 64 && outcome.output == [])
            #expect(
                outcome.errors.contains("--make always writes JSON: leave out --json"),
                "\(outcome.errors)")
        }

        @Test("a vector file whose name is not UTF-8 is an error that shows the name")
        func invalidName() throws {
            folder.write("a.json", try generate(1))
            let script = #"cp "$1/a.json" "$1/$(printf 'b\377.json')" && exec "$2" vectors "$1""#
            let outcome = try Subprocess.run("sh", ["-c", script, "sh", folder.path, Tool.path])
            Tool.expect(
                outcome, status: 66,
                "\(folder.path): the name of the file b\u{FFFD}.json is not UTF-8: rename the file")
        }

        @Test("the same seed makes the same vectors, and a longer file begins with them")
        func determinism() throws {
            let few = try generate(3, seed: 5)
            #expect(try generate(3, seed: 5) == few)
            // The last four bytes of a file close its list and its object.
            #expect(try generate(4, seed: 5).hasPrefix(few.dropLast(4)))
            #expect(try generate(3, seed: 6) != few)
        }

        @Test(
            "608 new vectors pass in dissononce, and the 197 whose pattern noiseprotocol knows pass there, too"
        )
        func independent() throws {
            let path = folder.file("fresh.json")
            let made = try Tool.start(
                ["vectors", "--make", "608", "--seed", "1"], output: path, within: 60
            ).wait()
            try #require(made.status == 0, "\(made.errors)")
            let replayed = try Subprocess.run(
                Self.python, [Self.vectorsFolder + "/generate.py", "--replay", path], within: 120)
            try #require(
                replayed.status == 0,
                """
                the script failed: \(replayed.errors); if .build/venv is missing, run `make test` \
                or `tools/install --python`
                """)
            #expect(
                replayed.text
                    == "\(path): 608 passed, 197 of them in noiseprotocol as well\n")
        }
    }
}
