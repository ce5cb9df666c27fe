import BLESec
import BLESecLinks
import BLESecRadioModel
import BLESecTesting
import Testing

@testable import blesec_bench

/// The model of LE radio: its air times and limits, and the goodput and delays of channels in it.
@Suite struct RadioTests {
    private static func parameters(
        _ phy: RadioParameters.PHY, milliseconds: Double
    ) -> RadioParameters {
        var parameters = RadioParameters()
        parameters.phy = phy
        parameters.interval = UInt64(milliseconds * 1e6)
        return parameters
    }

    private static func kilobits(_ goodput: Double) -> Double { goodput * 8 / 1e3 }

    @Test("packets take the time that the specification defines")
    func airTimes() {
        let (oneMegabit, twoMegabit) = (
            Self.parameters(.oneMegabit, milliseconds: 30),
            Self.parameters(.twoMegabit, milliseconds: 30)
        )
        // All times are in nanoseconds.
        #expect(oneMegabit.airTime(0) == 80_000 && oneMegabit.airTime(251) == 2_088_000)
        #expect(twoMegabit.airTime(0) == 44_000 && twoMegabit.airTime(251) == 1_048_000)
        #expect(oneMegabit.exchangeTime(251) == 2_468_000)
        #expect(twoMegabit.exchangeTime(251) == 1_392_000)
        var encrypted = twoMegabit
        encrypted.isLinkEncrypted = true
        #expect(encrypted.airTime(0) == 44_000 && encrypted.airTime(251) == 1_064_000)
    }

    /// The first five limits, in kbit/s, are computed by the formula of `docs/radio-model.md`. The
    /// last is Nordic's measurement (S140 SoftDevice Specification, notifications of 244 bytes),
    /// converted to the 247 bytes of a channel's packet.
    @Test(
        "the bare L2CAP channel is within 2 % of the formula's limits and of Nordic's measurement",
        arguments: [
            (RadioParameters.PHY.oneMegabit, 4_000.0, 801.0), (.twoMegabit, 4_000, 1_420),
            (.twoMegabit, 7.5, 1_317), (.twoMegabit, 30, 1_383), (.twoMegabit, 400, 1_418),
            (.twoMegabit, 400, 1_376 * 247 / 244),
        ])
    func limits(_ phy: RadioParameters.PHY, _ interval: Double, _ expected: Double) async throws {
        var parameters = Self.parameters(phy, milliseconds: interval)
        // With this size each packet is full, as in the formula.
        parameters.sdu = 33 * 247 - 2
        #expect(abs(Self.kilobits(parameters.goodputLimit) / expected - 1) < 0.02)
        let goodput = Self.kilobits(try await RadioRun(parameters).measureBareL2CAP())
        #expect(abs(goodput / expected - 1) < 0.02, "\(goodput)")
    }

    @Test(
        "bulk data is at most 2 % slower than over bare L2CAP; a short message is one packet",
        arguments: RadioScenario.engines)
    func channels(_ engine: String) async throws {
        let peers = [engine: try PeerConfigurations(engine)]
        var scenario = RadioScenario()
        scenario.leastVolume = 256 << 10
        scenario.leastIntervals = 16
        for interval in [7.5, 30, 100] {
            let parameters = Self.parameters(.twoMegabit, milliseconds: interval)
            let results = try await scenario.measure(parameters, peers, engines: [engine])
            #expect(results.map(\.engine) == [nil, engine])
            let ratio = try #require(results[1].ratio)
            let least = engine.hasPrefix("Noise") ? 0.985 : 0.98
            #expect((least...1).contains(ratio), "\(ratio)")
            let costs = try #require(results[1].messageCosts)
            #expect(costs.shortMessageTraffic.sdus == 1 && costs.shortMessageTraffic.packets == 1)
            // A flight never leaves in the same connection event as the flight that it answers.
            let flights = engine.hasPrefix("Noise_XX") || engine == "TLS1.3" ? 4.0 : 3.0
            #expect(costs.firstMessage.dialer > flights * interval * 1e6)
            #expect(costs.firstMessage.dialer < (flights + 2) * interval * 1e6)
        }
    }

    @Test(
        "Linux's credits cost at most 3 % of the goodput, and over 30 % with SDUs as long as the MTU"
    )
    func credits() async throws {
        var parameters = RadioParameters()
        let ampleCreditsGoodput = try await RadioRun(parameters).measureBareL2CAP()
        parameters.credits = .linux
        let linuxCreditsGoodput = try await RadioRun(parameters).measureBareL2CAP()
        #expect(
            linuxCreditsGoodput > 0.97 * ampleCreditsGoodput,
            "\(linuxCreditsGoodput / ampleCreditsGoodput)")
        parameters.sdu = parameters.mtu
        #expect(try await RadioRun(parameters).measureBareL2CAP() < 0.7 * ampleCreditsGoodput)
    }

    @Test(
        "a short queue takes at least two SDUs, at most 16 KiB; a link may change to a long queue and back",
        arguments: [500, 4_197, 8_192])
    func shortQueue(_ sdu: Int) async throws {
        let clock = ManualClock()
        let loop = EventLoop(name: "radio", clock: clock.loopClock)
        try await Task(executorPreference: loop) {
            var parameters = RadioParameters()
            parameters.sdu = sdu
            let (sender, receiver) = RadioLink.pair(parameters, loop: loop)
            let bytes = [UInt8](repeating: 1, count: sdu)
            var sent = 0
            func fill() throws -> Int {
                let before = sent
                while sent < 1 << 20, case let count = try sender.send(bytes.span), count > 0 {
                    sent += count
                }
                return sent - before
            }
            sender.keepsQueueShort = true
            let shortQueueBytes = try fill()
            #expect(
                (2 * sdu...16 << 10).contains(shortQueueBytes) && shortQueueBytes > 12_000,
                "\(shortQueueBytes)")
            await clock.advance(by: .milliseconds(80))
            let refill = try fill()
            #expect((sdu...shortQueueBytes).contains(refill), "\(refill)")
            sender.keepsQueueShort = false
            try #expect(fill() > 12 << 10)
            // The link has more queued than a short queue may hold. It takes nothing until there is
            // room.
            sender.keepsQueueShort = true
            try #expect(fill() == 0)
            await clock.advance(by: .seconds(1))
            try #expect(fill() == shortQueueBytes)
            #expect(sender.count.bytes == sent)
            receiver.close()
        }.value
        await loop.shutdown()
    }

    @Test("a short queue does not slow bulk data down", arguments: [7.5, 30, 400])
    func shortQueueGoodput(_ interval: Double) async throws {
        let parameters = Self.parameters(.twoMegabit, milliseconds: interval)
        let longQueueGoodput = try await RadioRun(parameters).measureBareL2CAP()
        let shortQueueGoodput = try await RadioRun(parameters).measureBareL2CAP(
            keepsQueueShort: true)
        #expect(
            shortQueueGoodput > 0.99 * longQueueGoodput,
            "\(shortQueueGoodput / longQueueGoodput)")
    }

    @Test("lost packets are sent again, everything arrives, and every run gives the same figures")
    func losses() async throws {
        let engine = ChannelConfiguration.defaultProtocol
        let peers = [engine: try PeerConfigurations(engine)]
        var scenario = RadioScenario()
        scenario.leastVolume = 64 << 10
        scenario.leastIntervals = 16
        var parameters = RadioParameters()
        let losslessResults = try await scenario.measure(parameters, peers, engines: [engine])
        parameters.loss = 0.2
        let results = try await scenario.measure(parameters, peers, engines: [engine])
        #expect(results[0].goodput < 0.8 * losslessResults[0].goodput)
        #expect(results[1].goodput < 0.8 * losslessResults[1].goodput)
        let repeatedResults = try await scenario.measure(parameters, peers, engines: [engine])
        #expect(repeatedResults.map(\.goodput) == results.map(\.goodput))
    }

    @Test(
        "with frames longer than a packet, few credits or short SDUs, all messages arrive",
        arguments: [(27, 247, 8_192), (27, 23, 8_192), (251, 247, 2_048), (100, 64, 500)])
    func frames(_ dataLength: Int, _ mps: Int, _ sdu: Int) async throws {
        let engine = ChannelConfiguration.defaultProtocol
        var parameters = RadioParameters()
        parameters.dataLength = dataLength
        parameters.mps = mps
        parameters.sdu = sdu
        parameters.credits = .linux
        parameters.loss = 0.05
        var scenario = RadioScenario()
        scenario.leastVolume = 64 << 10
        scenario.leastIntervals = 16
        let results = try await scenario.measure(
            parameters, [engine: PeerConfigurations(engine)], engines: [engine])
        #expect(
            results.allSatisfy {
                $0.goodput > 0 && $0.goodput < parameters.goodputLimitOfEndlessEvent
            })
    }
}

extension RadioRun {
    /// Returns the goodput of 2 MiB over the bare L2CAP channel, in bytes a second, and ends the
    /// run.
    fileprivate func measureBareL2CAP(keepsQueueShort: Bool = false) async throws -> Double {
        let goodput = try await bareGoodput(volume: 2 << 20, keepsQueueShort: keepsQueueShort)
        await end()
        return goodput
    }
}
