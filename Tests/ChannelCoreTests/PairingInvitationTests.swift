import BLESecPrimitives
import Testing

@testable import BLESecChannelCore

/// Invitations as text, and codes as people write them.
@Suite("Pairing invitations and codes")
struct PairingInvitationTests {
    static let key = Fingerprint(digest: Array(0..<32))
    static let service = "8a4f0001-1111-2222-3333-444455556666"
    static let now: Int64 = 1_800_000_000

    static func bytes(_ secret: consuming SecretBytes) -> [UInt8] { secret.span.array }

    /// Why an invitation refuses a key; nil if it admits the key.
    static func refusal(_ invitation: PairingInvitation, _ key: Fingerprint) -> String? {
        if case .refuse(let reason) = invitation.admit(key) { reason } else { nil }
    }

    @Test("a URI is parsed into the same invitation, even with white space around it")
    func roundTrip() throws {
        for service in [nil, Self.service, "1234"] {
            let invitation = PairingInvitation(from: Self.key, service: service, now: Self.now)
            for text in [invitation.uri, " \(invitation.uri)\r\n", "\t\(invitation.uri)\n"] {
                let parsed = try PairingInvitation(parsing: text)
                #expect(parsed.key == Self.key && parsed.service == service)
                #expect(parsed.expires == Self.now + 120)
                #expect(Self.bytes(parsed.copyOfSecret()) == Self.bytes(invitation.copyOfSecret()))
                #expect(!parsed.isOwn && invitation.isOwn && parsed.uri == invitation.uri)
            }
            #expect(invitation.uri.utf8.count < 200)
        }
    }

    @Test("two invitations have different secrets, and lifetimes have bounds")
    func fresh() throws {
        let first = PairingInvitation(from: Self.key, now: Self.now)
        let second = PairingInvitation(from: Self.key, lifetime: .seconds(86_400), now: Self.now)
        #expect(Self.bytes(first.copyOfSecret()) != Self.bytes(second.copyOfSecret()))
        #expect(second.expires == Self.now + 3_600)
        #expect(PairingInvitation(from: Self.key, lifetime: .zero, now: 5).expires == 6)
    }

    @Test("texts that are no invitation are refused, each with its reason")
    func bad() throws {
        let good = PairingInvitation(from: Self.key, service: Self.service, now: Self.now).uri
        let parts = good.dropFirst("blesec:pair?".count).split(separator: "&").map(String.init)
        func without(_ name: String) -> String {
            "blesec:pair?" + parts.filter { !$0.hasPrefix(name + "=") }.joined(separator: "&")
        }
        func with(_ name: String, _ value: String) -> String { without(name) + "&\(name)=\(value)" }
        let cases: [(String, String)] = [
            ("", "does not begin with blesec:"), ("blesec:", "blesec:pair?"),
            ("https://example.org/?v=1", "does not begin with blesec:"),
            ("BLESEC:pair?v=1", "does not begin with blesec:"),
            ("blesec:pair", "blesec:pair?"), ("blesec:meet?v=1", "blesec:pair?"),
            ("blesec:pair?", "is not a name with a value"),
            (good + "&", "is not a name with a value"),
            (good + "&v=1", "is repeated"), (good + "&\u{1B}[31m=1", "an unknown name"),
            (without("v"), "v is missing"), (with("v", "2"), "its version is not 1"),
            (with("v", "01"), "its version is not 1"), (without("key"), "key is missing"),
            (without("secret"), "secret is missing"), (without("expires"), "expires is missing"),
            (with("expires", "-1"), "no number"), (with("expires", "+5"), "no number"),
            (with("expires", "007"), "no number"), (with("expires", "1e9"), "no number"),
            (with("expires", "99999999999999999999"), "no number"),
            (with("key", "AAAA"), "key is not 43"), (with("secret", ""), "secret is not 43"),
            (with("secret", String(repeating: "A", count: 44)), "secret is not 43"),
            (with("secret", String(repeating: "+", count: 43)), "secret is not 43"),
            (with("secret", String(repeating: "_", count: 43)), "secret is not 43"),
            (with("secret", String(repeating: "é", count: 43)), "secret is not 43"),
            (with("service", "1234567"), "no UUID"), (with("service", "ABCD"), "no UUID"),
            (with("service", "8a4f0001-1111-2222-3333-44445555666g"), "no UUID"),
            (good + "&later=1", "an unknown name"), (good + " " + good, "does not begin"),
            (good + String(repeating: "x", count: 10_000), "too long"),
        ]
        for (text, reason) in cases {
            do throws(ChannelError) {
                _ = try PairingInvitation(parsing: text)
                Issue.record("\(text) is taken for an invitation")
            } catch {
                #expect(error.code == .badKey && error.reason.contains(reason), "\(text): \(error)")
                #expect(error.reason.unicodeScalars.allSatisfy { $0.value >= 0x20 })
            }
        }
    }

    @Test("the reason why a text is no invitation contains nothing of the secret")
    func secretInReason() throws {
        let good = PairingInvitation(from: Self.key, service: Self.service, now: Self.now).uri
        let secret = try #require(
            good.split(separator: "&").first { $0.hasPrefix("secret=") }?.dropFirst(7))
        let texts = [
            good + "&secret=" + secret, good.replacing("secret=", with: "secret%3D"),
            good.replacing("secret=", with: "secret"), good.replacing("v=1", with: "v=" + secret),
            good.replacing("&expires=", with: secret + "&expires="),
            good.replacing("service=", with: "service=" + secret),
        ]
        for text in texts {
            do throws(ChannelError) {
                _ = try PairingInvitation(parsing: text)
                Issue.record("\(text) is taken for an invitation")
            } catch {
                #expect(!error.reason.contains(secret.prefix(6)), "\(error)")
            }
        }
    }

    @Test("an invitation whose expiry has passed is parsed: only the inviter's clock decides")
    func past() throws {
        let invitation = PairingInvitation(from: Self.key, now: 0)
        #expect(try PairingInvitation(parsing: invitation.uri).expires == 120)
        #expect(invitation.refusal == nil)
    }

    @Test("the first key owns an invitation and may try again; another key is refused and reported")
    func owner() throws {
        let invitation = PairingInvitation(from: Self.key, now: Self.now)
        let (first, other) = (Fingerprint(digest: [1]), Fingerprint(digest: [2]))
        #expect(Self.refusal(invitation, first) == nil && Self.refusal(invitation, first) == nil)
        #expect(Self.refusal(invitation, other)?.contains("seen by someone else") == true)
        #expect(invitation.strangers == [other])
        invitation.close()
        #expect(Self.refusal(invitation, first)?.contains("used or withdrawn already") == true)
        #expect(Self.refusal(invitation, other) != nil)
    }

    @Test(
        "an inviter's expired invitation admits nobody; the invited side still admits the inviter"
    )
    func expired() async throws {
        let invitation = PairingInvitation(from: Self.key, lifetime: .seconds(1), now: Self.now)
        let parsed = try PairingInvitation(parsing: invitation.uri)
        try await Task.sleep(for: .milliseconds(1_100))
        let other = Fingerprint(digest: [1])
        #expect(Self.refusal(invitation, other)?.contains("has expired") == true)
        #expect(Self.refusal(parsed, Self.key) == nil && Self.refusal(parsed, other) != nil)
    }

    @Test("codes are 4 to 12 digits; spaces and hyphens between them are ignored")
    func codes() throws {
        for (text, digits) in [
            ("123456", "123456"), (" 12 34 56\u{20}", "123456"), ("0000", "0000"),
            ("123-456", "123456"), ("123456789012", "123456789012"),
        ] {
            #expect(try TrustPolicy.PairingCode(text).digits == digits)
        }
        for text in ["", "123", "1234567890123", "12345a", "١٢٣٤٥٦", "12\n345", "１２３４５６", "----"] {
            #expect(throws: ChannelError(.badKey, "")) { try TrustPolicy.PairingCode(text) }
        }
        for length in TrustPolicy.PairingCode.lengths {
            let code = TrustPolicy.PairingCode(length: length)
            #expect(code.digits.count == length && code.triesLeft == 3)
        }
        let digits = (0..<300).map { _ in TrustPolicy.PairingCode().digits }
        #expect(Set(digits).count > 290 && Set(digits.joined()).count == 10)
    }
}
