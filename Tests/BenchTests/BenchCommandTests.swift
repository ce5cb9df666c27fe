import Foundation
import TestSupport
import Testing

/// `blesec-bench`, as built with these tests.
@Suite struct BenchCommandTests {
    private static func run(_ arguments: String...) throws -> Subprocess.Outcome {
        try Bench.run(arguments)
    }

    /// The parts of a report that these tests check.
    private struct Report: Decodable {
        struct Summary: Decodable {
            var median: Double
        }
        struct Engine: Decodable {
            var layer: String
            var size: Int
            var ratio: Summary

            enum CodingKeys: String, CodingKey {
                case layer, size
                case ratio = "ratio-to-raw"
            }
        }
        struct Link: Decodable {
            var transport: String
            var engine: String
            var goodput: Summary
            var goodputRatio: Summary?

            enum CodingKeys: String, CodingKey {
                case transport, engine
                case goodput = "goodput-bytes-per-second"
                case goodputRatio = "goodput-ratio-to-plain"
            }
        }
        struct Streams: Decodable {
            var transport: String
            var shares: [String: Summary]

            enum CodingKeys: String, CodingKey {
                case transport
                case shares = "goodput-ratio-to-alone"
            }
        }
        struct Handshake: Decodable {
            struct Reference: Decodable {
                var nanoseconds: Summary
                var ratio: Summary
                var hkdfs: Int?
            }
            var `protocol`: String
            var dialer: Summary
            var acceptor: Summary
            var flights: [String: Int]
            var bytes: [String: Int]
            var primitives: Reference?
            var openssl: Reference?

            enum CodingKeys: String, CodingKey {
                case `protocol`, flights, bytes, primitives, openssl
                case dialer = "dialer-nanoseconds"
                case acceptor = "acceptor-nanoseconds"
            }
        }
        var schema: String
        var handshake: [Handshake]
        var engine: [Engine]
        var link: [Link]
        var streams: [Streams]
        var omissions: [String]
    }

    private static func report(_ bytes: [UInt8]) throws -> Report {
        try JSONDecoder().decode(Report.self, from: Data(bytes))
    }

    @Test("each layer is compared with the raw primitive, and each engine with the plain link")
    func json() throws {
        let outcome = try Self.run(
            "engine", "--quick", "--scenario", "link", "--transport", "memory", "--size", "64",
            "--rounds", "1", "--json", "-")
        #expect(outcome.status == 0)
        #expect(outcome.errors == "")
        let report = try Self.report(outcome.output)
        #expect(report.schema == "blesec-bench/1")
        let layers = ["raw", "AEAD", "TransportState", "NoiseEngine"]
        #expect(report.engine.map(\.layer) == layers + layers + ["raw", "TLSEngine"])
        #expect(report.engine.allSatisfy { $0.size == 64 && $0.ratio.median > 0 })
        #expect(report.handshake.isEmpty)
        #expect(report.link.map(\.transport) == [String](repeating: "memory", count: 4))
        let engines = ["plain", "Noise_XX_25519_ChaChaPoly_SHA256", "TLS1.3", "exactly-once"]
        #expect(report.link.map(\.engine) == engines)
        #expect(report.link[0].goodputRatio == nil)
        let ratio = try #require(report.link[1].goodputRatio)
        let quotient = report.link[1].goodput.median / report.link[0].goodput.median
        #expect(abs(ratio.median / quotient - 1) < 0.01)
        #expect(report.streams.map(\.transport) == ["memory"])
        #expect(report.streams[0].shares.values.allSatisfy { $0.median > 0 })
    }

    @Test(
        "handshakes are measured on both sides, with flights and bytes, and compared with primitives"
    )
    func handshakes() throws {
        let names = ["XX_25519_ChaChaPoly_SHA256", "IKpsk2_448_AESGCM_BLAKE2b"]
            .map { "Noise_" + $0 }
        let arguments =
            ["handshake", "--quick", "--rounds", "1"]
            + names.flatMap { ["--protocol", $0] }
        let outcome = try Bench.run(arguments + ["--json", "-"])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try Self.report(outcome.output)
        #expect(report.link.isEmpty && report.engine.isEmpty)
        #expect(report.handshake.map(\.protocol) == names)
        let (xx, ik) = (report.handshake[0], report.handshake[1])
        // The summands are an ephemeral key, an encrypted static key with its tag of 16 bytes, and a
        // payload's tag. A key has 32 bytes with curve 25519, and 56 with curve 448.
        #expect(xx.flights == ["dialer": 2, "acceptor": 1])
        #expect(xx.bytes == ["dialer": 32 + 48 + 16, "acceptor": 32 + 48 + 16])
        #expect(ik.flights == ["dialer": 1, "acceptor": 1])
        #expect(ik.bytes == ["dialer": 56 + 72 + 16, "acceptor": 56 + 16])
        for handshake in report.handshake {
            let reference = try #require(handshake.primitives)
            let total = handshake.dialer.median + handshake.acceptor.median
            let quotient = total / reference.nanoseconds.median
            // A quotient of medians differs from the median of quotients, but only a little.
            #expect(abs(reference.ratio.median / quotient - 1) < 0.5)
            #expect(reference.hkdfs ?? 0 > 0)
        }
        let table = try Bench.run(arguments)
        #expect(table.text.contains("\nIKpsk2_448_AESGCM_BLAKE2b  "))
    }

    @Test("TLS is compared with plain OpenSSL, and its handshake takes at most 1,450 bytes")
    func tls() throws {
        let outcome = try Self.run(
            "--quick", "--scenario", "engine", "--scenario", "handshake", "--scenario", "link",
            "--transport", "unix", "--size", "65536", "--rounds", "1", "--protocol", "TLS1.3",
            "--json", "-")
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try Self.report(outcome.output)
        #expect(report.engine.map(\.layer) == ["raw", "TLSEngine"])
        #expect(report.link.map(\.engine) == ["plain", "TLS1.3"])
        let handshake = try #require(report.handshake.first)
        #expect(handshake.flights == ["dialer": 2, "acceptor": 1])
        #expect(handshake.bytes.values.reduce(0, +) <= 1_450, "\(handshake.bytes)")
        #expect(handshake.openssl?.ratio.median ?? 0 > 0 && handshake.primitives == nil)
    }

    @Test(
        "the table has a line for each transport, size and engine, and the file has as many entries"
    )
    func table() throws {
        let folder = ScratchFolder()
        let file = folder.file("report.json")
        let outcome = try Self.run(
            "--quick", "--scenario", "link", "--transport", "unix", "--transport",
            "unix-seqpacket", "--size", "1", "--size", "65536", "--rounds", "1", "--protocol",
            "Noise_NN_25519_AESGCM_BLAKE2s", "--json", file)
        #expect(outcome.status == 0)
        let lines = outcome.text.split(separator: "\n")
        for start in ["1 B     plain", "1 B     NN_25519", "64 KiB  plain", "64 KiB  NN_25519"] {
            let matches = lines.filter { line in
                line.split(separator: " ").joined(separator: " ")
                    .hasPrefix(start.split(separator: " ").joined(separator: " "))
            }
            #expect(matches.count == 2, "\(start)")
        }
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        #expect(try Self.report(Array(bytes)).link.count == 8)
    }

    @Test("what is named twice is measured once")
    func namedTwice() throws {
        let folder = ScratchFolder()
        let file = folder.file("report.json")
        let name = "Noise_XX_25519_ChaChaPoly_SHA256"
        let selection = ["--transport", "memory", "--size", "64", "--protocol", name]
        let outcome = try Bench.run(
            ["engine", "handshake", "link", "--quick", "--rounds", "1", "--json", file]
                + selection + selection)
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try Self.report(Array(Data(contentsOf: URL(fileURLWithPath: file))))
        #expect(report.engine.map(\.layer) == ["raw", "AEAD", "TransportState", "NoiseEngine"])
        #expect(report.handshake.map(\.protocol) == [name])
        #expect(report.link.map(\.engine) == ["plain", name])
    }

    @Test("one file for both JSON and plots is refused, even with two names, and is not changed")
    func sameFile() throws {
        let folder = ScratchFolder()
        let (file, secondName) = (folder.write("report", "old"), folder.file("plots"))
        try FileManager.default.linkItem(atPath: file, toPath: secondName)
        func run(json: String, svg: String) throws -> Subprocess.Outcome {
            try Self.run("engine", "--quick", "--size", "64", "--json", json, "--svg", svg)
        }
        for name in [file, secondName] {
            let outcome = try run(json: file, svg: name)
            #expect(outcome.status == 64)
            #expect(outcome.errors.contains("--json and --svg name the same file"))
        }
        #expect(folder.read("report") == Array("old".utf8))
        #expect(try run(json: "/dev/null", svg: "/dev/null").status == 0)
    }

    @Test("two processes measure the link between them")
    func serveAndConnect() throws {
        let folder = ScratchFolder()
        let endpoint = "unix-seqpacket:" + folder.file("bench")
        let server = try Subprocess(Bench.path, ["serve", endpoint], within: Bench.timeLimit)
        _ = try server.line("listening on \(endpoint)")
        let outcome = try Self.run(
            "--connect", endpoint, "--quick", "--rounds", "1", "--size", "100", "--scenario",
            "link", "--json", "-")
        #expect(outcome.status == 0)
        #expect(outcome.errors == "")
        let report = try Self.report(outcome.output)
        #expect(report.link.map(\.transport) == [endpoint, endpoint, endpoint])
        #expect(report.omissions.contains { $0.contains("exactly once, and streams") })
    }

    @Test(
        "a command that cannot be carried out exits with its reason's status, and prints one line",
        arguments: [
            (["--size", "0"], 64, "--size is a number from 1 to 1048576"),
            (["--rounds", "x"], 64, "--rounds is a number"),
            (["--scenario", "speed"], 64, "a scenario is engine, handshake"),
            (["engine", "speed"], 64, "not `speed`"),
            (["engin"], 64, "unknown command `engin`: did you mean `engine`?"),
            (["handshake", "--connect", "unix:/nonexistent/x"], 64, "the scenario link"),
            (["--connect", "tcp:x"], 64, "is no endpoint"),
            (["--connect", "l2cap:any"], 64, "can be listened on"),
            (["--channels", "0"], 64, "--channels is a number from 1 to 20000"),
            (["--loops", "0"], 64, "--loops is a number from 1 to 64"),
            (["--transport", "tcp"], 64, "--transport is memory, unix, unix-seqpacket or l2cap"),
            (["--protocol", "Noise_IK_25519_ChaChaPoly_SHA256"], 64, "needs keys"),
            (["--protocol", "XX"], 64, "XX"),
            (["--connect", "unix:/nonexistent/x"], 68, "no such path"),
            (["--connect", "unix:/x", "--transport", "unix"], 64, "excludes"),
            (["--connect", "unix:/x", "--adapter", "hci7"], 64, "--adapter goes with an l2cap:"),
            (["serve", "unix:/x", "--adapter", "hci7"], 64, "--adapter goes with l2cap:any"),
            (["--transport", "memory", "--adapter", "hci7"], 64, "--adapter is for l2cap"),
            (["--transport", "unix", "--peer-adapter", "hci8"], 64, "--peer-adapter is for l2cap"),
            (["engine", "--peer-adapter", "hci8"], 64, "the scenario link"),
            (["link", "--adapter", "hci7"], 68, "Bluetooth adapter"),
            (["--json", "/nonexistent/report"], 73, "cannot be written"),
            (["--svg", "/nonexistent/plot"], 73, "cannot be written"),
            (["--svg", "-", "--json", "-"], 64, "cannot both go to standard output"),
            (["--compare", "/nonexistent/old"], 66, "cannot be read"),
            (["--compare", "/dev/null"], 65, "is no report to compare with"),
            (["serve", "unix:/nonexistent/x"], 73, "no such path"),
            (["serve"], 64, "ENDPOINT is missing; see `blesec-bench serve --help`"),
            (["judge"], 64, "--floors FILE is missing; see `blesec-bench judge --help`"),
            (["serv"], 64, "unknown command `serv`: did you mean `serve`?"),
        ])
    func refused(_ arguments: [String], _ status: Int32, _ reason: String) throws {
        let outcome = try Bench.run(arguments)
        #expect(outcome.status == status)
        #expect(outcome.errors.hasPrefix("blesec-bench: "))
        #expect(outcome.errors.contains(reason), "\(outcome.errors)")
        #expect(outcome.errors.filter { $0 == "\n" }.count == 1)
        #expect(outcome.output == [])
    }

    @Test("the help page of serve lists the statuses of a denied permission and of each signal")
    func serveStatuses() throws {
        let page = try Self.run("serve", "--help").text
        for status in [77, 129, 130, 143] {
            #expect(page.contains("\n       \(status) "), "\(status)")
        }
    }

    @Test(
        "the help pages have the headings of manual pages",
        arguments: [["--help"], ["serve", "--help"], ["judge", "--help"]])
    func manual(_ arguments: [String]) throws {
        let page = try Bench.run(arguments)
        #expect(page.status == 0)
        let headings = page.text.split(separator: "\n").filter { !$0.hasPrefix(" ") }
        #expect(
            headings == [
                "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES",
            ])
    }
}
