import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool with `fake_bluetoothd.py`, a message bus with a bluetoothd that misbehaves.
    @Suite struct BluetoothdTests {
        private static let script = #filePath.replacing(
            "BluetoothdTests.swift", with: "Peers/fake_bluetoothd.py")
        private static let service = "6f1d0a3c-9c5e-4b7e-8d2f-2a4c6e8f0b1d"

        private let folder = ScratchFolder()

        private func startBluetoothd(_ behaviour: String) throws -> Subprocess {
            let bluetoothd = try Subprocess(
                "/usr/bin/python3", [Self.script, folder.file("bus"), behaviour], within: 30)
            _ = try bluetoothd.line("listening")
            return bluetoothd
        }

        /// Starts the tool with the bluetoothd that was started before.
        private func startTool(_ arguments: [String]) throws -> Subprocess {
            try Subprocess(
                Tool.path, arguments,
                environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder.file("bus"))"],
                within: 30)
        }

        @Test(
            "a command says why it cannot use a bluetoothd that does not list its objects",
            arguments: [
                ("refuse", 77, "the system's D-Bus policy does not allow it"),
                ("end", 68, "bluetoothd ended before it answered (`systemctl start bluetooth`)"),
                ("hang", 75, "no answer came in time"),
            ] as [(String, Int32, String)])
        func listing(_ behaviour: String, _ status: Int32, _ cause: String) throws {
            let bluetoothd = try startBluetoothd(behaviour)
            let tool = try startTool(["scan", "--for", "1"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            Tool.expect(outcome, status: status, "cannot ask bluetoothd: \(cause)")
        }

        /// Starts a dialer with the bluetoothd that was started before.
        private func startDialer(_ pair: ToolPair) throws -> Subprocess {
            try startTool([
                "connect", "service:\(Self.service)", "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ])
        }

        @Test("the listing of a bluetoothd that has given up its name on the bus is ignored")
        func lateListing() throws {
            let bluetoothd = try startBluetoothd("leave")
            let tool = try startTool(["scan", "--for", "1"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            Tool.expect(outcome, status: 68, "bluetoothd does not run")
        }

        @Test(
            "a new device was heard even if its signal strength is unknown, but not a stored one that is paired",
            arguments: [("heard", true), ("stored", false)])
        func newDevice(_ behaviour: String, _ isHeard: Bool) throws {
            let bluetoothd = try startBluetoothd(behaviour)
            let tool = try startTool(["scan", "--service", Self.service, "--for", "1"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.text.contains("AA:BB:CC:DD:EE:FF") == isHeard, "\(outcome.text)")
        }

        @Test("an MTU that bluetoothd cannot have negotiated counts as unknown")
        func absurdMTU() throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("absurd")
            let dialer = try startDialer(pair)
            _ = try bluetoothd.line("StartNotify ", whileServing: [dialer])
            dialer.signal(SIGTERM)
            let outcome = try dialer.wait(whileServing: [bluetoothd])
            #expect(outcome.status == 128 + SIGTERM, "\(outcome.errors)")
        }

        @Test("a dial ends 4 seconds after a subscription that gets no answer, and sends nothing")
        func subscription() throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("deaf")
            let dialer = try startDialer(pair)
            _ = try bluetoothd.line("StartNotify ", whileServing: [dialer])
            let begun = ContinuousClock.now
            _ = try bluetoothd.line("RemoveDevice ", whileServing: [dialer])
            let elapsed = ContinuousClock.now - begun
            // The dial's limit is 4 s. That of a call to bluetoothd alone is 10 s.
            #expect(elapsed < .seconds(9), "\(elapsed)")
            dialer.signal(SIGTERM)
            _ = try dialer.wait(whileServing: [bluetoothd])
            let calls = try bluetoothd.wait().errors
            #expect(!calls.contains("WriteValue"), "\(calls)")
        }

        @Test("a device that connects, and that bluetoothd has not listed, can open a stream")
        func unknownDevice() throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("unknown")
            let listener = try startTool([
                "listen", "--service", Self.service, "--transport", "gatt", "--identity",
                pair.folder.file("listener"), "--peer", pair.dialerKey,
            ])
            _ = try bluetoothd.line("notified", whileServing: [listener])
            listener.signal(SIGTERM)
            _ = try listener.wait(whileServing: [bluetoothd])
        }
    }
}
