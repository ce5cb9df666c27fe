import BLESec
import Foundation
import Snippets
import Testing

/// The examples, run as a user would run them, over Unix sockets; Nearby runs without bluetoothd.
@Suite(.serialized) struct ExampleTests {
    let folder: ScratchFolder

    init() throws { folder = try ScratchFolder() }

    @Test("Greeting prints the message that arrived: hello, and a fingerprint")
    func greeting() throws {
        let outcome = try run("Greeting")
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.output.hasPrefix("hello, SHA256:"))
        #expect(outcome.output.count == "hello, SHA256:".count + 43 + 1)
    }

    @Test("a message lost on its link is reported as timed out, and a cut channel as truncated")
    func faultyLinks() async throws {
        let codes = try await loseAMessage()
        #expect(codes.delivery == .timedOut && codes.close == .truncated)
    }

    @Test("Echo sends every line back, to one dialer after another")
    func echo() throws {
        let (listening, dialing) = (try key("listening"), try key("dialing"))
        let listener = try start("Echo listen unix:echo listening \(dialing)")
        #expect(try listener.line(containing: "listening").hasSuffix("listening on unix:echo"))
        for text in ["one\ntwo\n", "", "three\n"] {
            let outcome = try start("Echo dial unix:echo dialing \(listening)").finish(text)
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.output == text)
            _ = try listener.line(containing: "served \(dialing)")
        }
    }

    @Test("Echo refuses a peer whose key is not PEER, when it listens and when it dials")
    func unexpectedKey() throws {
        let (listening, dialing) = (try key("listening"), try key("dialing"))
        try key("unexpected")
        let listener = try start("Echo listen unix:echo listening \(dialing)")
        _ = try listener.line(containing: "listening")
        let dialerWithOtherKey = try run("Echo dial unix:echo unexpected \(listening)")
        #expect(dialerWithOtherKey.status == 1)
        #expect(
            dialerWithOtherKey.errors.contains("the peer refuses"), "\(dialerWithOtherKey.errors)")
        _ = try listener.line(containing: "is not among the expected ones")
        let dialerExpectingOtherKey = try run("Echo dial unix:echo dialing \(dialing)")
        #expect(dialerExpectingOtherKey.status == 1)
        #expect(
            dialerExpectingOtherKey.errors.contains("is not among the expected ones"),
            "\(dialerExpectingOtherKey.errors)")
    }

    @Test("TLS delivers a message, and the receiver prints the sender's URI and the message")
    func certificates() throws {
        try authority("home", devices: ["door", "phone"])
        let listener = try start("TLS listen unix:door home door blesec://home/phone")
        _ = try listener.line(containing: "listening")
        let dialer = try run("TLS dial unix:door home phone blesec://home/door")
        #expect(dialer.status == 0, "\(dialer.errors)")
        #expect(dialer.output == "delivered\n")
        let heard = try listener.finish()
        #expect(heard.status == 0, "\(heard.errors)")
        #expect(heard.output == "blesec://home/phone: the bell rings\n")
    }

    @Test("TLS refuses a revoked device, an unexpected URI, and a device of another authority")
    func refusedCertificates() throws {
        try authority("home", devices: ["door", "phone", "lost", "lamp"])
        try authority("elsewhere", devices: ["thief"])
        try folder.blesec("ca revoke home lost.pem")
        let refusals = [
            ("home", "lost", "is revoked"), ("home", "lamp", "is not among the expected ones"),
            ("elsewhere", "thief", "leads to no authority"),
        ]
        for (authority, device, reason) in refusals {
            let listener = try start("TLS listen unix:\(device) home door blesec://home/phone")
            _ = try listener.line(containing: "listening")
            let words = "TLS dial unix:\(device) \(authority) \(device) blesec://home/door"
            let dialer = try run(words)
            #expect(dialer.status == 1, "\(device)")
            #expect(dialer.output == "", "\(device)")
            // A dialer checks the listener's certificate before it sends its own. So the device of
            // another authority refuses the door, and the door never sees that device's
            // certificate.
            if authority == "home" {
                _ = try listener.line(containing: reason)
            } else {
                #expect(dialer.errors.contains(reason), "\(dialer.errors)")
            }
        }
    }

    @Test("Nearby reports that bluetoothd does not run, and exits with 68")
    func noBluetooth() throws {
        let peer = try key("peer")
        try key("device")
        let nearby = try Program(
            "Nearby", ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "device", peer], in: folder,
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent"])
        let outcome = try nearby.finish("hello\n")
        #expect(outcome.status == 68)
        #expect(outcome.output == "")
        #expect(outcome.errors.hasPrefix("Nearby: "))
        #expect(outcome.errors.contains("bluetoothd"), "\(outcome.errors)")
    }

    @Test(
        "an example without arguments prints its usage, and exits with 64",
        arguments: ["Echo", "Nearby", "TLS"])
    func usage(_ name: String) throws {
        let outcome = try run(name)
        #expect(outcome.status == 64)
        #expect(outcome.errors.hasPrefix("\(name): usage: \(name) "))
    }

    @Test(
        "an example whose key file is missing prints the name of the file, and exits with 1",
        arguments: ["Echo", "Nearby"])
    func noKey(_ name: String) throws {
        let peer = try key("peer")
        let words = ["Echo": "dial unix:echo", "Nearby": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]
        let outcome = try run("\(name) \(words[name] ?? "") missing \(peer)")
        #expect(outcome.status == 1)
        #expect(outcome.errors.hasPrefix("\(name): missing"), "\(outcome.errors)")
    }

    // MARK: - Running

    private func start(_ words: String) throws -> Program {
        let words = words.split(separator: " ").map(String.init)
        return try Program(words[0], Array(words.dropFirst()), in: folder)
    }

    private func run(_ words: String) throws -> Program.Outcome { try start(words).finish() }

    /// Makes a key, and returns its fingerprint.
    @discardableResult
    private func key(_ name: String) throws -> String {
        let lines = try folder.blesec("keygen \(name)").split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("fingerprint: ") })
        return String(line.dropFirst("fingerprint: ".count))
    }

    /// Makes an authority, and a certificate for each device.
    private func authority(_ name: String, devices: [String]) throws {
        try folder.blesec("ca init \(name)")
        for device in devices {
            try folder.blesec("ca issue \(name) --uri blesec://\(name)/\(device) --out \(device)")
        }
    }
}
