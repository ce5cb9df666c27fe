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
        struct Many: Decodable {
            var engine: String
            var transport: String
            var channels: Int
            var goodput: Double
            var fairness: Double
            var idle: Cost
            var busy: Cost

            enum CodingKeys: String, CodingKey {
                case engine, transport, channels, idle, busy
                case goodput = "goodput-bytes-per-second"
                case fairness = "slowest-over-mean"
            }
        }
        struct Flood: Decodable {
            var alone: Double
            var flooded: Double
            var unauthenticated: Double
            var pinnedPeers: [PinnedPeers]

            enum CodingKeys: String, CodingKey {
                case pinnedPeers = "friends"
                case alone = "handshakes-per-second-alone"
                case flooded = "handshakes-per-second-flooded"
                case unauthenticated = "strangers-per-second"
            }
        }
        struct PinnedPeers: Decodable {
            var dials: Int
            var served: Double

            enum CodingKeys: String, CodingKey {
                case dials
                case served = "served-share"
            }
        }
        struct RawPeer: Decodable {
            var engine: String
            var answered: Double
            var unfinished: Double

            enum CodingKeys: String, CodingKey {
                case engine
                case answered = "answered-bytes"
                case unfinished = "unfinished-bytes"
            }
        }
        var many: [Many]
        var flood: [Flood]
        var rawPeers: [RawPeer]

        enum CodingKeys: String, CodingKey {
            case many, flood
            case rawPeers = "strangers"
        }
    }

    @Test(
        "idle channels are small and have no threads, and 10,000 would fit the kernel's limits"
    )
    func idle() throws {
        let outcome = try Subprocess.run(
            Bench.path, ["--scenario", "many", "--channels", "300", "--json", "-"])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try JSONDecoder().decode(Report.self, from: Data(outcome.output))
        #expect(report.many.map(\.engine) == [ChannelConfiguration.defaultProtocol, "TLS1.3"])
        for (result, limit) in zip(report.many, [16.0, 64.0]) {
            #expect(result.transport == "unix" && result.channels == 300)
            #expect(result.idle.memory < limit * 1_024, "\(result.idle.memory)")
            #expect(result.idle.descriptors == 1)
            #expect(result.idle.threads == 0 && result.busy.threads == 0)
            // The report counts the maps of all 600 ends. Linux allows 65,530 maps by default; the
            // 20,000 ends of 10,000 channels may use a third of them.
            #expect(result.idle.maps * 20_000 / 600 < 65_530 / 3, "\(result.idle.maps)")
            // By default a process may lock 8 MiB of memory.
            #expect(result.idle.locked * 20_000 / 600 < 8 << 20, "\(result.idle.locked)")
            #expect(result.goodput > 0 && result.fairness > 0 && result.fairness <= 1)
        }
        let flood = try #require(report.flood.first)
        #expect(flood.alone > 0 && flood.flooded > 0 && flood.unauthenticated > 0)
        // Known peers next to the listener, 10 ms away, and 100 to 500 ms away, the last with a
        // flood as slow as over LE.
        #expect(flood.pinnedPeers.count == 3)
        for peers in flood.pinnedPeers {
            #expect(peers.dials > 0 && peers.served >= 0.99, "\(peers)")
        }
        #expect(report.rawPeers.map(\.engine) == report.many.map(\.engine))
        for (peer, limit) in zip(report.rawPeers, [32.0, 128.0]) {
            #expect(peer.answered < limit * 1_024, "\(peer)")
            // 32 KiB is the bound before authentication, and `limit` the fixed memory of a peer.
            #expect(peer.unfinished < 32 * 1_024 + limit * 1_024, "\(peer)")
        }
    }
}
