internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine

/// The stage of hello and answer, and of *early*: the dialer's first handshake message, which
/// follows the hello (`docs/wire-format.md`, "Flights").
final class Negotiation: UnauthenticatedStage {
    private enum Expected {
        /// The acceptor waits for a hello.
        case hello
        /// The acceptor has a hello with these offers, and waits for *early*.
        case early(offers: [String])
        /// The dialer waits for an answer to its offers.
        case answer(offers: [String])
    }

    private var expected: Expected
    private let plans: OfferPlans
    private(set) var transcript: NegotiationTranscript
    /// The features of this side that the peer's hello or answer lists too.
    private var features = ChannelFeatures()

    init(acceptor parameters: ChannelParameters, _ plans: OfferPlans) {
        self.plans = plans
        transcript = NegotiationTranscript(context: parameters.configuration.context)
        expected = .hello
        super.init(parameters)
    }

    /// The dialer's side: sends the hello, followed by the first handshake message of offer 0.
    init(dialer parameters: ChannelParameters, _ plans: OfferPlans) throws(ChannelError) {
        self.plans = plans
        let configuration = parameters.configuration
        let hello = try Hello(
            offers: configuration.offers, extensions: parameters.features.extensions)
        transcript = NegotiationTranscript(context: configuration.context)
        transcript.hello = hello.encoded
        expected = .answer(offers: hello.offers)
        super.init(
            parameters,
            try plans.makeEngine(hello.offers[0], prologue: transcript.prologue(for: .accept)))
        guard let early = try records.engine.nextHandshake() else { throw .engineHasEnded }
        transcript.early = early
        dialToken = configuration.pendingDials.insert(early, by: parameters.ownKeys)
        try records.outbound.append(hello.encoded)
        try records.outbound.append(RecordLayer.framed(early))
    }

    // MARK: - ChannelStage

    override func step(now: UInt64) throws(ChannelError) -> Step {
        switch expected {
        case .hello: try readHello()
        case .early(let offers): try readEarly(offers, now: now)
        case .answer(let offers): try readAnswer(offers, now: now)
        }
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        beginTime.after(configuration.timeouts.negotiate)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        guard now >= nextTimeout(now: now) else { return .wait }
        throw .late(
            "the peer did not finish its part of the negotiation within",
            configuration.timeouts.negotiate)
    }

    // MARK: - The acceptor's side

    /// Answers `busy`, so that the dialer tries again later.
    func turnAway(_ error: ChannelError, now: UInt64) throws(ChannelError) -> Refusing {
        try send(Answer(.busy))
        return Refusing(after: self, error, now: now)
    }

    private func readHello() throws(ChannelError) -> Step {
        let hello = try records.inbound.withBytes { bytes throws(ChannelError) in
            try Hello(prefixOf: bytes.span)
        }
        guard let hello else { return .wait }
        records.inbound.consume(hello.encoded.count)
        transcript.hello = hello.encoded
        features = ChannelFeatures(in: hello.extensions).intersection(parameters.features)
        expected = .early(offers: hello.offers)
        return .again
    }

    private func readEarly(_ offers: [String], now: UInt64) throws(ChannelError) -> Step {
        guard
            let early = try records.takeFramed(atMost: configuration.limits.unauthenticatedBytes)
        else { return .wait }
        transcript.early = early
        returnedDial = configuration.pendingDials.dial(
            beginningWith: early, by: parameters.ownKeys)
        if let error = featureError {
            // The feature bits in the answer tell the dialer which features this side requires.
            try send(Answer(.refused, extensions: parameters.requiredFeatures.extensions))
            return .next(Refusing(after: self, error, now: now))
        }
        guard let index = offers.firstIndex(where: configuration.offers.contains) else {
            try send(Answer(.refused))
            let error = ChannelError(
                .noCommonProtocol,
                "the peer offers \(offers.joined(separator: ", ")), and none of that is "
                    + "accepted here")
            return .next(Refusing(after: self, error, now: now))
        }
        do throws(ChannelError) {
            return .next(makeHandshake(try answer(offers, index, early), now: now))
        } catch {
            throw error.during(.handshaking)
        }
    }

    /// Answers the offers, and returns the name of the protocol of the handshake that follows.
    /// `index` is the index of the first offer that this side supports. If offer 0 is not
    /// supported, or its early message cannot be read, a fallback is tried. If no fallback is
    /// possible, this side switches to the offer at `index`, or fails if `index` is 0.
    private func answer(
        _ offers: [String], _ index: Int, _ early: [UInt8]
    ) throws(ChannelError) -> String {
        if index == 0, try acceptFirst(offers[0], early) { return offers[0] }
        if let protocolName = try fallBack(offers, from: early) { return protocolName }
        guard index > 0 else { throw .unreadable }
        try sendAcceptance(.switch, index: index)
        records.replaceEngine(
            try plans.makeEngine(offers[index], prologue: transcript.prologue(for: .switch)))
        return offers[index]
    }

    /// Accepts offer 0. If the early message fails to authenticate, sends no answer, and returns false.
    private func acceptFirst(_ offer: String, _ early: [UInt8]) throws(ChannelError) -> Bool {
        records.replaceEngine(
            try plans.makeEngine(offer, prologue: transcript.prologue(for: .accept)))
        do throws(ChannelError) {
            guard try records.engine.receiveHandshake(early.span) == early.count else {
                throw .violation("an early message with bytes behind it")
            }
        } catch {
            guard error.code == .authenticationFailed else { throw error }
            return false
        }
        try sendAcceptance(.accept)
        return true
    }

    /// Answers with a fallback to one of the offers after the dialer's first, if one permits it. A
    /// fallback needs fewer flights than a switch.
    ///
    /// - Returns: the fallback's protocol name; nil if no offer permits a fallback.
    private func fallBack(_ offers: [String], from early: [UInt8]) throws(ChannelError) -> String? {
        for (index, offer) in offers.enumerated().dropFirst()
        where configuration.offers.contains(offer) {
            guard let plan = plans.fallback(offer, from: offers[0]) else { continue }
            try sendAcceptance(.fallback, index: index)
            records.replaceEngine(
                Engine(
                    try NoiseEngine(
                        fallback: plan, answering: early,
                        prologue: transcript.prologue(for: .fallback))))
            return plan.name.description
        }
        return nil
    }

    /// Sends an answer that accepts an offer, with the features that apply from now on.
    private func sendAcceptance(_ status: Answer.Status, index: Int = 0) throws(ChannelError) {
        try send(Answer(status, index: index, extensions: features.extensions))
    }

    private func send(_ answer: Answer) throws(ChannelError) {
        transcript.answer = answer.encoded
        try records.outbound.append(answer.encoded)
    }

    // MARK: - The dialer's side

    private func readAnswer(_ offers: [String], now: UInt64) throws(ChannelError) -> Step {
        let answer = try records.inbound.withBytes { bytes throws(ChannelError) in
            try Answer(prefixOf: bytes.span, offerCount: offers.count)
        }
        guard let answer else { return .wait }
        records.inbound.consume(answer.encoded.count)
        transcript.answer = answer.encoded
        features = ChannelFeatures(in: answer.extensions).intersection(parameters.features)
        if let error = featureError, ![.refused, .busy].contains(answer.status) { throw error }
        switch answer.status {
        case .accept: return .next(makeHandshake(offers[0], now: now))
        case .switch:
            records.replaceEngine(
                try plans.makeEngine(
                    offers[answer.index], prologue: transcript.prologue(for: .switch)))
            guard try records.sendHandshake() != nil else { throw .engineHasEnded }
            return .next(makeHandshake(offers[answer.index], now: now))
        case .fallback:
            guard let plan = plans.fallback(offers[answer.index], from: offers[0]) else {
                throw ChannelError(
                    .protocolViolation, "the peer answers with a fallback that was not offered")
            }
            try records.engine.fallBack(to: plan, prologue: transcript.prologue(for: .fallback))
            return .next(makeHandshake(plan.name.description, now: now))
        case .refused:
            let wanted = ChannelFeatures(in: answer.extensions).subtracting(parameters.features)
            if wanted.contains(.delivery) { throw .requiresDelivery }
            if wanted.contains(.pairing) { throw .requiresPairing }
            throw ChannelError(
                .noCommonProtocol,
                "the peer accepts none of \(offers.joined(separator: ", ")); "
                    + "offer a protocol that it speaks")
        case .busy:
            throw ChannelError(.busy, "the peer has too many handshakes under way; try again later")
        }
    }

    /// The error for a peer that lacks a feature which this side requires; nil if the peer has them
    /// all.
    private var featureError: ChannelError? {
        let lacking = parameters.requiredFeatures.subtracting(features)
        if lacking.contains(.pairing) { return .lacksPairing }
        return lacking.contains(.delivery) ? .lacksDelivery : nil
    }

    private func makeHandshake(_ protocolName: String, now: UInt64) -> Handshake {
        Handshake(after: self, protocolName, transcript, features, now: now)
    }
}

extension ChannelError {
    fileprivate static var lacksDelivery: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "this side requires that messages arrive exactly once, and the peer is not configured "
                + "for that; \(deliveryRemedy)")
    }

    fileprivate static var requiresDelivery: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "the peer requires that messages arrive exactly once, and this side is not configured "
                + "for that; \(deliveryRemedy)")
    }

    fileprivate static var lacksPairing: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "this side wants to pair, and the peer does not: run `blesec pair` on both sides")
    }

    fileprivate static var requiresPairing: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "the peer wants to pair, and this side does not: run `blesec pair` on both sides")
    }

    private static var deliveryRemedy: String {
        "run the same command on both sides; `listen` and `connect` both need --persist"
    }

    fileprivate static var unreadable: ChannelError {
        ChannelError(
            .authenticationFailed,
            "the peer's first message cannot be read: it was meant for another key, or changed on "
                + "the way")
    }
}
