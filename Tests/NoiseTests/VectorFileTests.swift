import BLESecNoiseVectors
import BLESecPrimitives
import FoundationEssentials
import Testing

@Suite struct VectorFileTests {
    @Test("vectors from the independent implementation's files are written back byte for byte")
    func text() throws {
        for name in TestVectors.all {
            let bytes = try [UInt8](TestVectors.data("noise/\(name).json"))
            let vectors = try VectorFile(path: name, bytes: bytes).vectors
            #expect(render(vectors) == bytes, "\(name)")
        }
    }

    @Test("the member names and forms of other implementations' vectors are read as well")
    func dialects() throws {
        let text = """
            {"comment": ["anything"], "vectors": [{
              "name": "Noise_NNpsk0_25519_ChaChaPoly_SHA256", "pattern": "NN", "hybrid": "",
              "init_prologue": "00FFaB", "init_psk": "0102", "init_static": null,
              "resp_psk": "0102", "resp_ephemeral": "07", "init_remote_static": "08",
              "messages": [{"payload": "", "ciphertext": "0A", "more": 1.5e3}]}]}
            """
        let vector = try #require(try read(text).first)
        #expect(vector.protocolName == "Noise_NNpsk0_25519_ChaChaPoly_SHA256")
        #expect(vector.initiator.prologue == [0, 0xFF, 0xAB])
        #expect(vector.initiator.psks == [[1, 2]])
        #expect(vector.initiator.staticKey == nil)
        #expect(vector.initiator.remoteStatic == [8])
        #expect(vector.responder.prologue.isEmpty)
        #expect(vector.responder.psks == [[1, 2]])
        #expect(vector.responder.ephemeral == [7])
        #expect(vector.handshakeHash == nil)
        #expect(vector.attemptedPattern == nil)
        #expect(vector.messages.map(\.ciphertext) == [[0x0A]])
    }

    @Test("a member may have both of its names if they agree; a `name` of another kind is ignored")
    func aliases() throws {
        let vectors = try read(
            #"""
            {"vectors": [
             {"name": "Noise_A", "protocol_name": "Noise_A", "init_psk": "0102",
              "init_psks": ["0102"], "messages": []},
             {"name": "the second", "protocol_name": "Noise_B", "resp_psk": null,
              "resp_psks": ["03", "04"], "messages": []}]}
            """#)
        #expect(vectors.map(\.protocolName) == ["Noise_A", "Noise_B"])
        #expect(vectors.first?.initiator.psks == [[1, 2]])
        #expect(vectors.last?.responder.psks == [[3], [4]])
    }

    static let malformedTexts: [(text: String, place: String, reason: String)] = [
        (
            #"{"vectors": [{"name": "Noise_A", "protocol_name": "Noise_B", "messages": []}]}"#,
            "vectors[0].name", "contradicts `protocol_name`"
        ),
        (
            #"{"vectors": [{"name": "x", "init_psk": "00", "init_psks": ["01"]}]}"#,
            "vectors[0].init_psk", "contradicts `init_psks`"
        ),
        (
            #"{"vectors": [{"name": "x", "resp_psk": "00", "resp_psks": ["00", "00"]}]}"#,
            "vectors[0].resp_psk", "contradicts `resp_psks`"
        ),
        ("[]", "", "not an object"),
        ("{}", "vectors", "missing"),
        (#"{"vectors": null}"#, "vectors", "null"),
        (#"{"vectors": {}}"#, "vectors", "not an array"),
        (#"{"vectors": [7]}"#, "vectors[0]", "not an object"),
        (#"{"vectors": [{}]}"#, "vectors[0].protocol_name", "missing"),
        (#"{"vectors": [{"name": 7}]}"#, "vectors[0].name", "not a text"),
        (#"{"vectors": [{"name": "x"}]}"#, "vectors[0].messages", "missing"),
        (
            #"{"vectors": [{"name": "x", "messages": []}, {"name": "x", "init_psks": "00"}]}"#,
            "vectors[1].init_psks", "not an array"
        ),
        (
            #"{"vectors": [{"name": "x", "init_psks": ["00", "0"]}]}"#,
            "vectors[0].init_psks[1]", "an odd number"
        ),
        (
            #"{"vectors": [{"name": "x", "resp_static": "0g"}]}"#, "vectors[0].resp_static",
            "no hexadecimal digit"
        ),
        (
            #"{"vectors": [{"name": "x", "handshake_hash": "é"}]}"#, "vectors[0].handshake_hash",
            "no hexadecimal digit"
        ),
        (#"{"vectors": [{"name": "x", "fallback": true}]}"#, "vectors[0].pattern", "missing"),
        (
            #"{"vectors": [{"name": "x", "fallback": "yes"}]}"#, "vectors[0].fallback",
            "not true or false"
        ),
        (
            #"{"vectors": [{"name": "x", "messages": [{"payload": ""}]}]}"#,
            "vectors[0].messages[0].ciphertext", "missing"
        ),
        (
            #"{"vectors": [{"name": "x", "messages": [{"payload": "", "ciphertext": "0"}]}]}"#,
            "vectors[0].messages[0].ciphertext", "an odd number"
        ),
    ]

    @Test(
        "a malformed file is an error that names the file, the place and the reason",
        arguments: malformedTexts)
    func malformed(_ expected: (text: String, place: String, reason: String)) {
        #expect {
            try read(expected.text)
        } throws: { error in
            guard let error = error as? VectorFileError else { return false }
            return error.kind == .malformed && error.path == "a file"
                && error.place == expected.place && error.reason.contains(expected.reason)
                && !error.reason.isEmpty && !error.description.contains("\n")
        }
    }

    static let invalidTexts: [(text: String, place: String)] = [
        ("", "line 1, column 1"),
        ("x", "line 1, column 1"),
        ("{\"vectors\": [\n{]}", "line 2, column 2"),
        ("{\"vectors\" []}", "line 1, column 12"),
        ("{\"vectors\": [],}", "line 1, column 16"),
        ("{\"vectors\": []} x", "line 1, column 17"),
        ("{\"vectors\": [\n\n  1.2.3]}", "line 3, column 3"),
        ("{\"vectors\": [\n\"\\q\"]}", "line 2, column 3"),
        ("{\"vectors\": [\"a\nb\"]}", "line 1, column 16"),
        ("{\"vectors\": [{\"name\": nul}]}", "line 1, column 23"),
        ("{\"vectors\": [{\"name\": \"x\"}", "line 1, column 27"),
        ("{\"vectors\": [01]}", "line 1, column 14"),
        ("{\"vectors\": [+1]}", "line 1, column 14"),
        ("{\"vectors\": [1., 0]}", "line 1, column 14"),
        ("{\"vectors\": [1e]}", "line 1, column 14"),
        ("{\"vectors\": [0x1]}", "line 1, column 14"),
        ("{\"vectors\": [inf]}", "line 1, column 14"),
        ("{\"vectors\": [1,]}", "line 1, column 16"),
        ("{\"vectors\": [\"\\u12x4\"]}", "line 1, column 19"),
        ("{\"vectors\": [\"\\ud800\"]}", "line 1, column 17"),
        ("{\"vectors\": [\"\\udc00\\ud800\"]}", "line 1, column 17"),
        ("{\"vectors\": [\"\\ud800\\u0041\"]}", "line 1, column 17"),
        ("{'vectors': []}", "line 1, column 2"),
        ("\u{FEFF}{\"vectors\": []}", "line 1, column 1"),
    ]

    @Test("invalid JSON is an error that names line and column", arguments: invalidTexts)
    func syntax(_ expected: (text: String, place: String)) {
        #expect {
            try read(expected.text)
        } throws: { error in
            (error as? VectorFileError)?.place == expected.place
                && "\(error)".contains("valid JSON")
        }
    }

    @Test("JSON that is not part of a vector is ignored")
    func otherJSON() throws {
        let vectors = try read(
            #"""
            {"a": [0, -0, 1.5E+3, -12e-1, true, false, null, {}, [], [[]], ""],
             "b": {"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00": "é😀"}, "vectors":
             [{"n\u0061me": "\u0078", "messages": []}] }
            """#)
        #expect(vectors.map(\.protocolName) == ["x"])
    }

    @Test("a repeated member is refused, since JSON readers differ in which value they use")
    func repeatedMember() {
        #expect {
            try read(#"{"vectors": [], "vectors": [{}]}"#)
        } throws: { error in
            (error as? VectorFileError)?.place == "line 1, column 17"
                && "\(error)".contains("second time")
        }
    }

    @Test("a text that is not UTF-8 is refused")
    func notUTF8() {
        var bytes = Array(#"{"vectors": [{"name": "x"}]}"#.utf8)
        bytes[23] = 0xFF
        #expect {
            try VectorFile(path: "a file", bytes: bytes)
        } throws: { error in
            (error as? VectorFileError)?.place == "line 1, column 23"
        }
    }

    @Test("a file that ends before its closing brace is an error")
    func truncation() throws {
        let vectors = try TestVectors.load("psk").prefix(1)
        let bytes = render(Array(vectors))
        // The last two bytes are the closing brace and a line feed.
        for count in 0..<bytes.count - 1 {
            #expect(throws: VectorFileError.self) {
                try VectorFile(path: "a file", bytes: Array(bytes.prefix(count)))
            }
        }
    }

    @Test(
        "a file with a changed byte is refused, has a failing vector, lacks a member, or has the same vectors"
    )
    func changes() throws {
        let vector = try #require(try TestVectors.load("one-way").first)
        let bytes = render([vector])
        let seed: UInt64 = 6
        var generator = SeededGenerator(seed: seed)
        for position in bytes.indices {
            var changed = bytes
            changed[position] = UInt8.random(in: .min ... .max, using: &generator)
            guard let file = try? VectorFile(path: "a file", bytes: changed) else { continue }
            // The change may rename an optional member, or change only the case of a hexadecimal
            // digit.
            let isExpected =
                file.vectors == [vector] || file.vectors.isEmpty
                || file.vectors[0].handshakeHash == nil || file.vectors[0].run() != .passed
            #expect(isExpected, "seed \(seed), byte \(position)")
        }
    }

    @Test("nesting of 100,000 levels is an error, not a crash")
    func depth() {
        for text in ["[", "{\"vectors\":", "{\"vectors\":[{\"x\":["] {
            #expect(throws: VectorFileError.self) {
                try read(String(repeating: text, count: 100_000))
            }
        }
    }

    @Test(
        "a folder gives its vector files; a folder without any, a missing file and an endless file are errors"
    )
    func paths() throws {
        #expect {
            try VectorFile(path: "/nonexistent/file")
        } throws: {
            ($0 as? VectorFileError)?.kind == .missing
        }
        #expect {
            try VectorFile(path: "/dev/zero")
        } throws: {
            "\($0)".contains("64 MiB")
        }
        #expect {
            try VectorFile.paths(at: "/proc/self/fd")
        } throws: {
            ($0 as? VectorFileError)?.kind == .missing
        }
        let found = try VectorFile.paths(at: TestVectors.path("noise"))
        #expect(found == TestVectors.all.map { TestVectors.path("noise/\($0).json") }.sorted())
        #expect(try VectorFile.paths(at: found[0]) == [found[0]])
    }

    @discardableResult
    private func read(_ text: String) throws -> [NoiseVector] {
        try VectorFile(path: "a file", bytes: Array(text.utf8)).vectors
    }

    private func render(_ vectors: [NoiseVector]) -> [UInt8] {
        NoiseVector.opening + vectors.map(\.text).joined(separator: NoiseVector.separator)
            + NoiseVector.closing
    }
}
