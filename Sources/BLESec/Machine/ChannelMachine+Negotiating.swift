internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine

// Hello and answer, and the first handshake messages that travel with them
// (`docs/wire-format.md`, "Negotiation").
extension ChannelMachine {
    /// Begins direct mode, with its only engine.
    mutating func beginDirect() throws(ChannelError) {
        protocolName = configuration.protocols[0]
        engine = try configuration.makeEngine(
            protocolName, role: role, prologue: configuration.prologue)
        stage = .handshake
        clocks.negotiated = start
        if role == .dialer, let message = try engine.nextHandshake() {
            dialToken = configuration.pendingDials.insert(message, by: configuration.ownKeys)
            try appendHandshake(message)
        }
    }

    /// Sends the hello, followed by the first message of the first offer.
    mutating func beginHello() throws(ChannelError) {
        let hello = try Hello(
            offers: configuration.protocols, extensions: ChannelFeatures.known.extensions)
        offers = hello.offers
        transcript.hello = hello.encoded
        protocolName = offers[0]
        engine = try configuration.makeEngine(
            protocolName, role: .dialer, prologue: transcript.prologue(for: .accept))
        guard let early = try engine.nextHandshake() else { throw .engineIsDead }
        transcript.early = early
        dialToken = configuration.pendingDials.insert(early, by: configuration.ownKeys)
        try outbound.append(hello.encoded)
        try outbound.append(Self.framed(early))
    }

    /// Reads the hello once it is complete.
    mutating func readHello() throws(ChannelError) -> Bool {
        let hello = try inbound.withBytes { bytes throws(ChannelError) in
            try Hello(prefixOf: bytes.span)
        }
        guard let hello else { return false }
        inbound.consume(hello.encoded.count)
        transcript.hello = hello.encoded
        offers = hello.offers
        features = ChannelFeatures(in: hello.extensions)
        stage = .early
        return true
    }

    /// Reads the dialer's early message once it is complete, and answers.
    mutating func readEarly(now: UInt64) throws(ChannelError) -> Bool {
        guard let early = try takeFramed() else { return false }
        transcript.early = early
        guard !configuration.pendingDials.refuses(early, by: configuration.ownKeys) else {
            throw .talksToItself
        }
        clocks.negotiated = now
        guard let index = offers.firstIndex(where: configuration.protocols.contains) else {
            try answer(Answer(.refused))
            refuse(
                ChannelError(
                    .noCommonProtocol,
                    "the peer offers \(offers.joined(separator: ", ")), and none of that is "
                        + "accepted here"), now: now)
            return true
        }
        stage = .handshake
        if index == 0, try accept(early) { return true }
        if try fallBack(from: early) { return true }
        guard index > 0 else { throw .unreadable }
        protocolName = offers[index]
        try accept(.switch, index: index)
        engine = try configuration.makeEngine(
            protocolName, role: .acceptor, prologue: transcript.prologue(for: .switch))
        return true
    }

    /// Accepts the first offer; returns false if the early message fails to authenticate.
    private mutating func accept(_ early: [UInt8]) throws(ChannelError) -> Bool {
        protocolName = offers[0]
        engine = try configuration.makeEngine(
            protocolName, role: .acceptor, prologue: transcript.prologue(for: .accept))
        do throws(ChannelError) {
            guard try engine.receiveHandshake(early.span) == early.count else {
                throw .violation("an early message with bytes behind it")
            }
        } catch {
            guard error.code == .authenticationFailed else { throw error }
            return false
        }
        try accept(.accept)
        return true
    }

    /// Answers with the fallback of a later offer, which needs fewer flights than a switch; returns
    /// false if there is none.
    private mutating func fallBack(from early: [UInt8]) throws(ChannelError) -> Bool {
        for (index, offer) in offers.enumerated().dropFirst()
        where configuration.protocols.contains(offer) {
            guard
                let plan = try configuration.fallback(offer, from: offers[0], for: .acceptor)
            else { continue }
            protocolName = plan.name.description
            try accept(.fallback, index: index)
            engine = Engine(
                try NoiseEngine(
                    fallback: plan, answering: early,
                    prologue: transcript.prologue(for: .fallback)))
            return true
        }
        return false
    }

    /// Reads the acceptor's answer once it is complete.
    mutating func readAnswer(now: UInt64) throws(ChannelError) -> Bool {
        let offerCount = offers.count
        let answer = try inbound.withBytes { bytes throws(ChannelError) in
            try Answer(prefixOf: bytes.span, offerCount: offerCount)
        }
        guard let answer else { return false }
        inbound.consume(answer.encoded.count)
        transcript.answer = answer.encoded
        features = ChannelFeatures(in: answer.extensions)
        clocks.negotiated = now
        switch answer.status {
        case .accept:
            break
        case .switch:
            protocolName = offers[answer.index]
            engine = try configuration.makeEngine(
                protocolName, role: .dialer, prologue: transcript.prologue(for: .switch))
            guard let message = try engine.nextHandshake() else { throw .engineIsDead }
            dialToken = configuration.pendingDials.insert(message, by: configuration.ownKeys)
            try appendHandshake(message)
        case .fallback:
            guard
                let plan = try configuration.fallback(
                    offers[answer.index], from: offers[0], for: .dialer)
            else {
                throw ChannelError(
                    .protocolViolation, "the peer answers with a fallback that was not offered")
            }
            protocolName = plan.name.description
            try engine.fallBack(to: plan, prologue: transcript.prologue(for: .fallback))
        case .refused:
            throw ChannelError(
                .noCommonProtocol,
                "the peer accepts none of \(offers.joined(separator: ", ")); "
                    + "offer a protocol that it speaks")
        case .busy:
            throw ChannelError(.busy, "the peer has too many handshakes under way; try again later")
        }
        stage = .handshake
        return true
    }

    /// Turns a dialer away to make room. A dialer that waits for an answer gets the answer `busy`,
    /// and has 2 seconds to close the link; in any later stage this side closes the link.
    mutating func turnAway(_ error: ChannelError, now: UInt64) {
        guard stage == .hello || stage == .early, outcome == nil else { return fail(error) }
        do throws(ChannelError) {
            try answer(Answer(.busy))
        } catch {
            return fail(error)
        }
        refuse(error, now: now)
    }

    /// Sends an answer that accepts an offer, with the features that apply from now on.
    private mutating func accept(
        _ status: Answer.Status, index: Int = 0
    ) throws(ChannelError) {
        try answer(Answer(status, index: index, extensions: features.extensions))
    }

    private mutating func answer(_ answer: Answer) throws(ChannelError) {
        transcript.answer = answer.encoded
        try outbound.append(answer.encoded)
    }

    /// Appends a handshake message, with a length prefix if the engine needs one.
    mutating func appendHandshake(_ message: [UInt8]) throws(ChannelError) {
        try outbound.append(engine.framesHandshake ? Self.framed(message) : message)
    }

    private static func framed(_ message: [UInt8]) -> [UInt8] {
        [UInt8(truncatingIfNeeded: message.count >> 8), UInt8(truncatingIfNeeded: message.count)]
            + message
    }

    /// Takes a message with a u16 length prefix, or returns `nil` while the message is incomplete.
    mutating func takeFramed() throws(ChannelError) -> [UInt8]? {
        let bound = configuration.limits.unauthenticatedBytes
        let message = try inbound.withBytes { bytes throws(ChannelError) -> [UInt8]? in
            guard bytes.count >= 2 else { return nil }
            let length = Int(bytes[0]) << 8 | Int(bytes[1])
            guard (1...bound).contains(length) else {
                throw ChannelError(
                    .protocolViolation,
                    "the peer announces a handshake message of \(length) bytes, and 1 to "
                        + "\(bound) are allowed")
            }
            guard bytes.count >= 2 + length else { return nil }
            return bytes.span.array(in: 2..<2 + length)
        }
        if let message { inbound.consume(2 + message.count) }
        return message
    }
}

extension ChannelError {
    static var unreadable: ChannelError {
        ChannelError(
            .authenticationFailed,
            "the peer's first message cannot be read: it was meant for another key, or changed on "
                + "the way")
    }

    static var talksToItself: ChannelError {
        ChannelError(.selfConnection, "the peer is this device itself; dial another one")
    }
}
