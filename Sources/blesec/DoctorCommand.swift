internal import BLESec
internal import BLESecDiscovery
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// `blesec doctor`
enum DoctorCommand {
    static let command = Command(manual: manual, run: run)

    private static let manual = Manual(
        name: "blesec doctor", summary: "check what Bluetooth on this machine lacks",
        options: [.json],
        description: [
            "Looks at the kernel, bluetoothd, the adapters and this user's permissions, and prints "
                + "a line for each: whether it is as it should be, and what to do where it is "
                + "not. A line that begins with `note` is no fault, but good to know."
        ],
        examples: [("blesec doctor", "Say what is wrong before anything else is tried.")],
        statuses: [.success, .usage, .noPeer, .inputOutput])

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        var findings = kernel()
        let bluetoothd = await Bluetoothd.connect()
        findings += await daemon(bluetoothd)
        findings += await bluetoothd.inspection.flatMap(adapter)
        if await bluetoothd.isRunning, await bluetoothd.adapters.isEmpty {
            findings.append(
                Finding(.bad, "adapter", "none; plug one in, or load its driver's firmware"))
        }
        await bluetoothd.close()
        for finding in findings { try finding.print() }
        let bad = findings.count { $0.grade == .bad }
        guard bad > 0 else { return }
        throw ChannelError(
            .noSuchAdapter, "\(bad) of \(findings.count) things are not as they should be")
    }

    private struct Finding {
        enum Grade: String { case good = "ok", note, bad }

        let grade: Grade
        let subject: String
        let text: String

        init(_ grade: Grade, _ subject: String, _ text: String) {
            (self.grade, self.subject, self.text) = (grade, subject, text)
        }

        func print() throws(ChannelError) {
            let word = grade.rawValue + String(repeating: " ", count: 5 - grade.rawValue.count)
            try StandardOutput.print(
                line: "\(word) \(subject): \(text)",
                or: [
                    ("grade", .string(grade.rawValue)), ("subject", .string(subject)),
                    ("text", .string(text)),
                ])
        }
    }

    private static func kernel() -> [Finding] {
        var findings = [Finding(.good, "kernel", SystemFacts.kernelVersion)]
        do throws(LinkError) {
            let adapters = try Adapter.all()
            findings.append(Finding(.good, "sockets", "this user may open Bluetooth channels"))
            if adapters.isEmpty {
                findings.append(Finding(.bad, "adapter", "the kernel knows none"))
            }
        } catch {
            findings.append(Finding(.bad, "sockets", error.reason))
        }
        if SystemFacts.firstLine(of: "/sys/module/bluetooth/parameters/enable_ecred") == "Y" {
            findings.append(
                Finding(
                    .note, "kernel",
                    "enhanced credits are on, which had a run of bugs; `modprobe bluetooth "
                        + "enable_ecred=0` switches them off"))
        }
        return findings
    }

    private static func daemon(_ bluetoothd: Bluetoothd) async -> [Finding] {
        guard await bluetoothd.isRunning else {
            return [
                Finding(
                    .bad, "bluetoothd",
                    "it does not run, or D-Bus does not: `systemctl start "
                        + "bluetooth`; listening and dialing by address work without it")
            ]
        }
        let version = SystemFacts.bluetoothdVersion ?? "of a version that it does not tell"
        var findings = [Finding(.good, "bluetoothd", version)]
        let words = await bluetoothd.processNumber.map(SystemFacts.commandLine) ?? []
        let namesPlugins = words.contains { $0.hasPrefix("-P") || $0.hasPrefix("--noplugin") }
        if !namesPlugins, !words.isEmpty {
            findings.append(
                Finding(
                    .note, "bluetoothd",
                    "it runs all of its plugins, of which some ask to pair with a device that "
                        + "connects (`--noplugin=battery,hog,midi,input` leaves them out)"))
        }
        if let channels = SystemFacts.attChannels(of: words), channels != 1 {
            findings.append(
                Finding(
                    .note, "bluetoothd",
                    "it opens channels of its own to a device that connects, which may confuse "
                        + "the kernel; `Channels = 1` below `[GATT]` in /etc/bluetooth/main.conf "
                        + "ends that"))
        }
        return findings
    }

    private static func adapter(_ adapter: AdapterInspection) -> [Finding] {
        var findings: [Finding] = []
        if let failure = adapter.state.failure(of: adapter.name) {
            findings.append(Finding(.bad, adapter.name, failure.reason))
        } else {
            findings.append(Finding(.good, adapter.name, "\(adapter.address), on"))
        }
        if !adapter.roles.isEmpty, !adapter.roles.contains("peripheral") {
            findings.append(
                Finding(.bad, adapter.name, "it cannot advertise; it can scan and dial"))
        }
        if let (active, free) = adapter.advertisements, free == 0 {
            findings.append(
                Finding(
                    .bad, adapter.name,
                    "all of its \(active) advertisements are in use; end the programs that use them"
                ))
        }
        if adapter.addressType == "public" {
            findings.append(
                Finding(
                    .note, adapter.name,
                    "it advertises the address that was burned in, by which it can be followed; "
                        + "`btmgmt privacy on` hides it where the kernel and adapter can"))
        }
        if adapter.alias == SystemFacts.hostName {
            findings.append(
                Finding(
                    .note, adapter.name,
                    "it tells the host's name to whoever connects; `bluetoothctl system-alias "
                        + "NAME` changes that"))
        }
        return findings
    }
}
