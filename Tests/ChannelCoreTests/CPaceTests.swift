import BLESecPrimitives
import Testing

@testable import BLESecChannelCore

/// CPace against the test vectors of draft-irtf-cfrg-cpace-21, appendix B.3.
@Suite("CPace")
struct CPaceTests {
    static func bytes(_ hex: String) -> [UInt8] {
        let digits = hex.filter { !$0.isWhitespace }
        return stride(from: 0, to: digits.count, by: 2).map { offset in
            let start = digits.index(digits.startIndex, offsetBy: offset)
            return UInt8(digits[start...].prefix(2), radix: 16) ?? 0
        }
    }

    static func secret(_ bytes: [UInt8]) -> SecretBytes { SecretBytes(copying: bytes.span) }

    /// The vector's inputs. `channel` is the draft's CI: both parties' names, each after a byte
    /// with its length.
    static let channel = bytes("0b415f696e69746961746f720b425f726573706f6e646572")
    static let session = bytes("7e4b4791d6a8ef019b936c79fb7f2c57")
    static let context = CPace.Context(
        channel: channel, session: session, initiator: Array("ADa".utf8),
        responder: Array("ADb".utf8))
    static let initiatorScalar = bytes(
        "da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08")
    static let responderScalar = bytes(
        "d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d")
    static let initiatorShare = bytes(
        "d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157")
    static let responderShare = bytes(
        "3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258")
    static let key = bytes(
        """
        b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd
        2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447
        """)

    static func run(isInitiator: Bool) -> CPace {
        CPace(
            code: secret(Array("Password".utf8)), context, isInitiator: isInitiator,
            scalar: secret(isInitiator ? initiatorScalar : responderScalar))
    }

    /// The key of a run; empty if the share is refused.
    static func key(_ run: consuming CPace, with share: [UInt8]) -> [UInt8] {
        switch run.finish(peerShare: share) {
        case .some(let keys): keys.key.span.array
        case nil: []
        }
    }

    /// A product's bytes; empty if there is none.
    static func product(_ scalar: borrowing SecretBytes, _ element: [UInt8]) -> [UInt8] {
        switch Ristretto255.product(of: scalar, and: element.span) {
        case .some(let product): product.span.array
        case nil: []
        }
    }

    @Test("the generator, both shares and the key are those of the draft's vector")
    func vector() {
        let generator = CPace.generator(
            code: Self.secret(Array("Password".utf8)), channel: Self.channel,
            session: Self.session)
        #expect(
            generator.span.array
                == Self.bytes("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56"))
        let initiator = Self.run(isInitiator: true)
        let responder = Self.run(isInitiator: false)
        #expect(initiator.share == Self.initiatorShare)
        #expect(responder.share == Self.responderShare)
        #expect(Self.key(initiator, with: Self.responderShare) == Self.key)
        #expect(Self.key(responder, with: Self.initiatorShare) == Self.key)
    }

    @Test("a product equals that of the draft, and is nil for an invalid element and the identity")
    func products() {
        let scalar = Self.secret(
            Self.bytes("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05"))
        let element = Self.bytes("2c3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c")
        #expect(
            Self.product(scalar, element)
                == Self.bytes("7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e"))
        var invalid = element
        invalid[0] = 0x2B
        var unreduced = [UInt8](repeating: 0xFF, count: 32)
        unreduced[31] = 0x7F
        let identity = [UInt8](repeating: 0, count: 32)
        for bytes in [invalid, identity, unreduced, Array(element.dropLast()), element + [0], []] {
            #expect(Self.product(scalar, bytes).isEmpty)
        }
    }

    @Test("this side's own share, the identity, and a share that is no valid element are refused")
    func refused() {
        let identity = [UInt8](repeating: 0, count: 32)
        for share in [identity, Array(repeating: 0xFF, count: 32), Self.initiatorShare, []] {
            #expect(Self.key(Self.run(isInitiator: true), with: share).isEmpty)
        }
    }

    /// The initiator's confirmation and the responder's, as one side calculates them.
    static func confirmations(_ run: consuming CPace, with share: [UInt8]) -> [[UInt8]] {
        switch run.finish(peerShare: share) {
        case .some(let keys):
            [keys.confirmation(ofInitiator: true), keys.confirmation(ofInitiator: false)]
        case nil: []
        }
    }

    @Test("confirmations agree if the codes and the public inputs agree, and differ otherwise")
    func confirmations() throws {
        func run(
            _ code: String, _ context: CPace.Context, isInitiator: Bool
        ) -> CPace {
            CPace(code: Self.secret(Array(code.utf8)), context, isInitiator: isInitiator)
        }
        func agree(_ code: String, _ secondContext: CPace.Context) throws -> Bool {
            let first = run("123456", Self.context, isInitiator: true)
            let second = run(code, secondContext, isInitiator: false)
            let (firstShare, secondShare) = (first.share, second.share)
            let atFirst = Self.confirmations(first, with: secondShare)
            let atSecond = Self.confirmations(second, with: firstShare)
            #expect((atFirst[0] == atSecond[0]) == (atFirst[1] == atSecond[1]))
            #expect(atFirst[0] != atFirst[1])
            return atFirst == atSecond
        }
        #expect(try agree("123456", Self.context))
        #expect(try !agree("123457", Self.context))
        for change in 0..<4 {
            let changed = CPace.Context(
                channel: change == 0 ? [] : Self.channel, session: change == 1 ? [1] : Self.session,
                initiator: change == 2 ? [2] : Self.context.initiator,
                responder: change == 3 ? [3] : Self.context.responder)
            #expect(try !agree("123456", changed))
        }
    }
}
