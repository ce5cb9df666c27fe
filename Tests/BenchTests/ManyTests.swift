import BLESec
import Foundation
import TestSupport
import Testing

@testable import blesec_bench

/// Many channels at once, in a separate process, so that nothing else uses its memory.
@Suite struct ManyTests {
    private struct Report: Decodable {
        struct Cost: Decodable {
            var memory: Double
            var descriptors: Double
            var threads: Int
            var maps: Int
            var locked: Int

            enum CodingKeys: String, CodingKey {
                case memory = "resident-bytes-per-end"
                case descriptors = "descriptors-per-end"
                case threads, maps
                case locked = "locked-bytes"
            }
        }
        struct Summary: Decodable {
            var median: Double
            var count: Int
        }
        struct Loops: Decodable {
            var channels: Int
            var loops: Int
            var handshakeRate: Double
            var goodput: Double
            var batchGoodput: Double
            var handshakeRatioToOneLoop: Summary?
            var goodputRatioToOneLoop: Summary?
            var batchRatioToOneLoop: Summary?

            enum CodingKeys: String, CodingKey {
                case channels, loops
                case handshakeRate = "opened-per-second"
                case goodput = "goodput-bytes-per-second"
                case batchGoodput = "batch-goodput-bytes-per-second"
                case handshakeRatioToOneLoop = "opened-ratio-to-one-loop"
                case goodputRatioToOneLoop = "goodput-ratio-to-one-loop"
                case batchRatioToOneLoop = "batch-goodput-ratio-to-one-loop"
            }
        }
        struct Ratio: Decodable {
            var name: String
            var lessIsBetter: Bool

            enum CodingKeys: String, CodingKey {
                case name
                case lessIsBetter = "less-is-better"
            }
        }
        struct Many: Decodable {
            var engine: String
            var transport: String
            var channels: Int
            var goodput: Double
            var batchGoodput: Double
            var goodputRatioToC: Summary?
            var batchRatioToC: Summary?
            var fairness: Double
            var idle: Cost
            var busy: Cost

            enum CodingKeys: String, CodingKey {
                case engine, transport, channels, idle, busy
                case goodput = "goodput-bytes-per-second"
                case batchGoodput = "batch-goodput-bytes-per-second"
                case goodputRatioToC = "goodput-ratio-to-c"
                case batchRatioToC = "batch-goodput-ratio-to-c"
                case fairness = "slowest-over-mean"
            }
        }
        struct Listener: Decodable {
            var time: Double
            var limit: Double

            enum CodingKeys: String, CodingKey {
                case time = "processor-nanoseconds-per-channel"
                case limit = "limit-nanoseconds"
            }
        }
        struct Flood: Decodable {
            var handshakeRateAlone: Double
            var handshakeRateFlooded: Double
            var endedLinkRate: Double
            var knownPeers: [KnownPeers]

            enum CodingKeys: String, CodingKey {
                case knownPeers = "known-peers"
                case handshakeRateAlone = "handshakes-per-second-alone"
                case handshakeRateFlooded = "handshakes-per-second-flooded"
                case endedLinkRate = "flood-links-ended-per-second"
            }
        }
        struct KnownPeers: Decodable {
            var dials: Int
            var served: Double

            enum CodingKeys: String, CodingKey {
                case dials
                case served = "served-share"
            }
        }
        struct PeerCost: Decodable {
            var engine: String
            var bytesOfAnsweredPeer: Double
            var bytesOfUnfinishedMessage: Double

            enum CodingKeys: String, CodingKey {
                case engine
                case bytesOfAnsweredPeer = "resident-bytes-answered"
                case bytesOfUnfinishedMessage = "resident-bytes-unfinished"
            }
        }
        var many: [Many]
        var loops: [Loops]
        var ratios: [Ratio]
        var listener: [Listener]
        var flood: [Flood]
        var costs: [PeerCost]
        var omissions: [String]

        enum CodingKeys: String, CodingKey {
            case many, loops, ratios, listener, flood, omissions
            case costs = "unauthenticated-peer-cost"
        }
    }

    @Test(
        "idle channels take little memory and no threads, and 10,000 would fit the kernel's limits"
    )
    func idle() throws {
        let outcome = try Bench.run([
            "--scenario", "many", "--channels", "300", "--rounds", "1", "--json", "-",
        ])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try JSONDecoder().decode(Report.self, from: Data(outcome.output))
        #expect(report.many.map(\.engine) == [ChannelConfiguration.defaultProtocol, "TLS1.3"])
        for (result, limitInKiB) in zip(report.many, [16.0, 64.0]) {
            #expect(result.transport == "unix" && result.channels == 300)
            #expect(result.idle.memory < limitInKiB * 1_024, "\(result.idle.memory)")
            #expect(result.idle.descriptors == 1)
            #expect(result.idle.threads == 0 && result.busy.threads == 0)
            // The report counts the memory maps of all 600 ends. Linux allows a process 65,530 maps
            // by default; the 20,000 ends of 10,000 channels may use a third of them.
            #expect(result.idle.maps * 20_000 / 600 < 65_530 / 3, "\(result.idle.maps)")
            // By default a process may lock 8 MiB of memory.
            #expect(result.idle.locked * 20_000 / 600 < 8 << 20, "\(result.idle.locked)")
            #expect(result.goodput > 0 && result.fairness > 0 && result.fairness <= 1)
            #expect(result.batchGoodput > 0)
        }
        // Only Noise does the same work as the epoll loop in C.
        for ratio in [report.many[0].goodputRatioToC, report.many[0].batchRatioToC] {
            #expect(ratio?.count == 1 && ratio?.median ?? 0 > 0)
        }
        #expect(report.many[1].goodputRatioToC == nil && report.many[1].batchRatioToC == nil)
        #expect(report.loops.isEmpty)
        let listener = try #require(report.listener.first)
        #expect(listener.time > 0 && listener.limit > 0)
        #expect(report.ratios.contains { $0.name.hasSuffix("/listener") })
        let flood = try #require(report.flood.first)
        #expect(flood.handshakeRateAlone > 0 && flood.handshakeRateFlooded > 0)
        #expect(flood.endedLinkRate > 0)
        // There are three kinds of known peers. Two dial during a flood at full speed: one without a
        // delay, and one with a round trip of 10 ms. The third dials during a flood at LE's rate,
        // with a round trip of 100 to 500 ms.
        #expect(flood.knownPeers.count == 3)
        for peers in flood.knownPeers {
            // One dial in a hundred may fail. If there are fewer dials, one of them may fail.
            let failedDials = Int((Double(peers.dials) * (1 - peers.served)).rounded())
            #expect(peers.served > 0 && failedDials <= max(1, peers.dials / 100), "\(peers)")
        }
        #expect(report.costs.map(\.engine) == report.many.map(\.engine))
        for (peer, limitInKiB) in zip(report.costs, [32.0, 128.0]) {
            #expect(peer.bytesOfAnsweredPeer < limitInKiB * 1_024, "\(peer)")
            // An unauthenticated peer may send 32 KiB. `limitInKiB` is for the peer's other memory.
            #expect(peer.bytesOfUnfinishedMessage < (32 + limitInKiB) * 1_024, "\(peer)")
        }
    }

    @Test("the table and the JSON have the ratios to C and, with --loops, to one loop")
    func ratios() throws {
        let folder = ScratchFolder()
        let file = folder.file("report.json")
        let outcome = try Bench.run([
            "many", "--quick", "--channels", "1", "--channels", "4", "--channels", "4",
            "--rounds", "1", "--loops", "2", "--json", file,
        ])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let data = try Data(contentsOf: URL(fileURLWithPath: file))
        let report = try JSONDecoder().decode(Report.self, from: data)
        // One channel cannot be spread over two loops. Four channels, although named twice, are
        // measured once for each of the two engines.
        #expect(report.loops.map(\.channels) == [4, 4] && report.loops.map(\.loops) == [2, 2])
        for result in report.loops {
            #expect(result.handshakeRate > 0 && result.goodput > 0 && result.batchGoodput > 0)
            for ratio in [
                result.handshakeRatioToOneLoop, result.goodputRatioToOneLoop,
                result.batchRatioToOneLoop,
            ] {
                #expect(ratio?.count == 1 && ratio?.median ?? 0 > 0)
            }
        }
        // The names of the ratios to C have the number of channels, and say whether each send has a
        // single message or a batch. The names of the ratios to one loop also have the number of loops.
        let name = "many/\(ChannelConfiguration.defaultProtocol)"
        for ratio in ["1/single", "1/batch", "4/single", "4/batch", "4/loops-2/opened"] {
            let found = report.ratios.first { $0.name == "\(name)/\(ratio)" }
            #expect(found?.lessIsBetter == false, "\(ratio)")
        }
        let heading = outcome.text.split(separator: "\n").first { $0.hasPrefix("channels ") }
        let words = heading?.split(separator: " ").joined(separator: " ") ?? ""
        #expect(
            words.hasPrefix("channels engine MB/s × C MB/s, 16/send × C slowest/mean"), "\(words)")
        #expect(outcome.text.contains("\nMany channels on 2 loops, in elapsed time\n"))
    }

    @Test("what needs more descriptors than a process may have is left out; the rest is measured")
    func fewDescriptors() throws {
        let outcome = try Subprocess.run(
            "sh",
            [
                "-c", #"ulimit -n 100; exec "$@""#, "sh", Bench.path, "many", "--quick",
                "--channels", "20", "--rounds", "1", "--loops", "20", "--json", "-",
            ], within: Bench.timeLimit)
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try JSONDecoder().decode(Report.self, from: Data(outcome.output))
        #expect(report.many.map(\.transport) == ["memory", "memory"])
        #expect(report.listener.count == 1)
        #expect(report.loops.isEmpty && report.costs.isEmpty && report.flood.isEmpty)
        for beginning in [
            "20 channels ran over links in memory", "Channels on 20 loops were not measured",
            "The cost of an unauthenticated peer was not measured",
            "A listener in a flood was not measured",
        ] {
            let notes = report.omissions.filter { $0.hasPrefix(beginning) }
            #expect(
                notes.count == 1 && notes[0].contains("at most 100 descriptors"), "\(beginning)")
        }
    }

    @Test("channels run over sockets if descriptors suffice for channels, loops and 64 other files")
    func linkKind() {
        let descriptors = DescriptorBudget(limit: 1_024)
        // With one channel or one loop more, the descriptors do not suffice.
        let limits = [(channels: 479, loops: 1), (channels: 470, loops: 10)]
        for (channels, loops) in limits {
            let kinds = [(channels, loops), (channels + 1, loops), (channels, loops + 1)].map {
                ChannelGroup.LinkKind(channels: $0.0, loops: $0.1, descriptors)
            }
            #expect(kinds == [.unix, .memory, .memory])
        }
    }

    @Test("the listener of a measurement that fails is closed, and its socket is removed")
    func failedMeasurement() async throws {
        let peers = try PeerConfigurations(ChannelConfiguration.defaultProtocol)
        let loop = EventLoop(name: "failed")
        // Keeps the listener, so that the listener's release does not remove the socket.
        var keptListener: SecureListener?
        var path = ""
        do {
            try await SecureListener.withScratch(peers.acceptor, loop: loop) { listener, address in
                (keptListener, path) = (listener, address.path)
                #expect(FileManager.default.fileExists(atPath: path))
                throw BenchError.failed("the measurement")
            }
        } catch BenchError.failed {}
        #expect(path != "" && !FileManager.default.fileExists(atPath: path))
        withExtendedLifetime(keptListener) {}
        await loop.shutdown()
    }

    @Test(
        "the epoll loop in C receives whole batches on every channel, and loses no message",
        arguments: [(1, 1, 1), (3, 64, 16), (200, 1_024, 16), (2, 60_000, 4)])
    func epollPeers(_ channels: Int, _ size: Int, _ batch: Int) throws {
        let load = try EpollPeers.measure(
            channels: channels, size: size, batch: batch, nanoseconds: 2_000_000)
        #expect(load.bytes % (size * batch) == 0)
        #expect(load.leastMessages >= batch && load.leastMessages % batch == 0)
        #expect(load.bytes >= channels * load.leastMessages * size)
        #expect(load.time > 0 && load.goodput > 0)
    }

    @Test(
        "the epoll loop in C refuses what it cannot do",
        arguments: [(0, 1_024, 1), (1, 0, 1), (1, 60_001, 1), (1, 1_024, 0), (1, 1_024, 1_025)])
    func epollPeersRefuse(_ channels: Int, _ size: Int, _ batch: Int) {
        #expect(throws: BenchError.self) {
            try EpollPeers.measure(channels: channels, size: size, batch: batch, nanoseconds: 1)
        }
    }
}
