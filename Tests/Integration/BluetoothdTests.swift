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
            let tool = try startTool(["scan", "--for", "20"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            Tool.expect(outcome, status: status, "cannot ask bluetoothd: \(cause)")
        }

        @Test("the time limit of pair includes the wait for bluetoothd")
        func pairingTimeLimit() throws {
            let bluetoothd = try startBluetoothd("hang")
            let tool = try startTool([
                "pair", "--name", "x", "--state", folder.file("state"), "--timeout", "2",
            ])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            Tool.expect(outcome, status: 75, "bluetoothd did not answer within 2 s")
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
            let tool = try startTool(["scan", "--for", "20"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            Tool.expect(outcome, status: 68, "bluetoothd does not run")
        }

        @Test(
            "a scan shows a new device without a signal strength, but not a stored device that is paired",
            arguments: [("heard", true), ("stored", false)])
        func newDevice(_ behaviour: String, _ isHeard: Bool) throws {
            let bluetoothd = try startBluetoothd(behaviour)
            let tool = try startTool(["scan", "--service", Self.service, "--for", "2"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.text.contains("AA:BB:CC:DD:EE:FF") == isHeard, "\(outcome.text)")
        }

        @Test(
            "on a terminal a scan draws a table, but prints lines if TERM is `dumb`",
            arguments: [("xterm", true), ("dumb", false)])
        func table(_ terminal: String, _ isTable: Bool) throws {
            let bluetoothd = try startBluetoothd("heard")
            let command = "'\(Tool.path)' scan --service \(Self.service) --for 2"
            let tool = try Subprocess(
                "script", ["-qec", command, "/dev/null"],
                environment: [
                    "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder.file("bus"))", "TERM": terminal,
                ], within: 30)
            let outcome = try tool.wait(whileServing: [bluetoothd])
            #expect(outcome.status == 0, "\(outcome.text)")
            #expect(outcome.text.contains("AA:BB:CC:DD:EE:FF"), "\(outcome.text)")
            #expect(outcome.text.contains("\u{1B}") == isTable, "\(outcome.text)")
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

        @Test(
            "a dial whose subscription gets no answer ends within its own limit, and sends nothing")
        func subscription() throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("deaf")
            let dialer = try startDialer(pair)
            _ = try bluetoothd.line("StartNotify ", whileServing: [dialer])
            let startTime = ContinuousClock.now
            _ = try bluetoothd.line("RemoveDevice ", whileServing: [dialer])
            let elapsed = ContinuousClock.now - startTime
            // The dial's limit is 4 s. Without that limit, the call to bluetoothd would end after 10 s.
            #expect(elapsed < .seconds(9), "\(elapsed)")
            dialer.signal(SIGTERM)
            _ = try dialer.wait(whileServing: [bluetoothd])
            let calls = try bluetoothd.wait().errors
            #expect(!calls.contains("WriteValue"), "\(calls)")
        }

        @Test(
            "a failed dial ends only a link of its own: the device is removed, or only disconnected if the device was paired before the dial or a paired device has the same address",
            arguments: [
                ("deaf", ["RemoveDevice"]), ("paired", ["RemoveDevice"]),
                ("flapping", ["RemoveDevice"]), ("known", ["Disconnect"]),
                ("twin", ["Disconnect"]), ("present", []), ("shared", []),
            ])
        func removal(_ behaviour: String, _ methods: [String]) throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd(behaviour)
            let dialer = try startDialer(pair)
            _ = try dialer.line("blesec: no channel with ", whileServing: [bluetoothd])
            dialer.signal(SIGTERM)
            _ = try dialer.wait(whileServing: [bluetoothd])
            let calls = try bluetoothd.wait().errors.split(separator: "\n").compactMap {
                $0.split(separator: " ").first.map(String.init)
            }
            #expect(
                calls.filter { ["RemoveDevice", "Disconnect"].contains($0) } == methods, "\(calls)")
        }

        @Test(
            "if the device is paired during a dial, the dial ends, even if the link was lost and came back; the error reports the pairing, and whether the device was removed",
            arguments: [("paired", true), ("flapping", true), ("twin", false), ("present", false)])
        func pairing(_ behaviour: String, _ isRemoved: Bool) throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd(behaviour)
            let dialer = try startDialer(pair)
            let line = try dialer.line("blesec: no channel with ", whileServing: [bluetoothd])
            #expect(
                line.contains("was paired over Bluetooth during the dial"),
                "\(line)")
            #expect(line.contains(", and was removed from bluetoothd: ") == isRemoved, "\(line)")
            dialer.signal(SIGTERM)
            _ = try dialer.wait(whileServing: [bluetoothd])
        }

        @Test(
            "a dialer finds a device's stream even if 4,080 other characteristics take all the room"
        )
        func crowd() throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("crowded")
            let dialer = try startDialer(pair)
            _ = try bluetoothd.line("StartNotify ", whileServing: [dialer])
            dialer.signal(SIGTERM)
            _ = try dialer.wait(whileServing: [bluetoothd])
        }

        @Test(
            "if a scan hears a device that was not listed, one new listing 10 s later finds the device"
        )
        func hiddenDevice() throws {
            let bluetoothd = try startBluetoothd("hidden")
            let tool = try startTool(["scan", "--service", Self.service, "--for", "15"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.text.contains("AA:BB:CC:DD:EE:FF"), "\(outcome.text)")
            let calls = try bluetoothd.wait().errors.split(separator: "\n")
            #expect(calls.count { $0.hasPrefix("GetManagedObjects ") } == 2, "\(calls)")
        }

        @Test(
            "a dialer ends soon after SIGTERM, even if bluetoothd has stopped answering",
            arguments: ["SetDiscoveryFilter", "StartDiscovery", "StopDiscovery", "RemoveDevice"])
        func silence(_ method: String) throws {
            let pair = try ToolPair()
            let bluetoothd = try startBluetoothd("silent:\(method)")
            let dialer = try startDialer(pair)
            _ = try bluetoothd.line("\(method) ", whileServing: [dialer])
            dialer.signal(SIGTERM)
            let startTime = ContinuousClock.now
            let outcome = try dialer.wait(whileServing: [bluetoothd])
            let elapsed = ContinuousClock.now - startTime
            #expect(outcome.status == 128 + SIGTERM, "\(outcome.errors)")
            // If the dialer waited for the call to bluetoothd, it would end only after 10 s.
            #expect(elapsed < .seconds(9), "\(elapsed)")
        }

        @Test(
            "doctor notes that an adapter is pairable",
            arguments: [("pairable", true), ("heard", false)])
        func pairable(_ behaviour: String, _ isNoted: Bool) throws {
            let bluetoothd = try startBluetoothd(behaviour)
            let tool = try startTool(["doctor"])
            let outcome = try tool.wait(whileServing: [bluetoothd])
            #expect(outcome.text.contains("ok    hci0: "), "\(outcome.text)")
            #expect(
                outcome.text.contains("note  hci0: it is pairable: ") == isNoted, "\(outcome.text)")
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
