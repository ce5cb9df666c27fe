internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// `blesec doctor`
enum DoctorCommand {
    static let command = Command(
        name: "blesec doctor", summary: "check whether this machine is ready for Bluetooth",
        options: [.json],
        description: [
            "Checks the kernel, bluetoothd, the adapters and this user's permissions, and prints a "
                + "line for each finding. The line says whether that part is as it should be and, "
                + "if it is not, what to do. A line that begins with `note` reports no fault, but "
                + "a fact that is good to know."
        ],
        examples: ["blesec doctor": "Find faults before you try anything else."],
        statuses: [.success, .usage, .noPeer, .inputOutput], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        var findings = Findings()
        findings.addKernel()
        let bluetoothd = await Bluetoothd.connect()
        await findings.addDaemon(bluetoothd)
        for adapter in await bluetoothd.inspection { findings.addAdapter(adapter) }
        if await bluetoothd.isRunning, await bluetoothd.adapters.isEmpty {
            findings.add(.bad, "adapter", "none; plug one in, or load its driver's firmware")
        }
        await bluetoothd.close()
        try findings.print()
    }
}

/// What the doctor has found, in the order of its output.
private struct Findings {
    enum Grade: String { case good = "ok", note, bad }

    private var list: [(grade: Grade, subject: String, text: String)] = []

    mutating func add(_ grade: Grade, _ subject: String, _ text: String) {
        list.append((grade, subject, text))
    }

    /// Prints a line for each finding, and throws an error if any is bad.
    func print() throws(ChannelError) {
        for (grade, subject, text) in list {
            let word = grade.rawValue + String(repeating: " ", count: 5 - grade.rawValue.count)
            try StandardOutput.print(
                line: "\(word) \(subject): \(text)",
                or: [
                    ("grade", .string(grade.rawValue)), ("subject", .string(subject)),
                    ("text", .string(text)),
                ])
        }
        let bad = list.count { $0.grade == .bad }
        guard bad > 0 else { return }
        throw ChannelError(
            .noSuchAdapter, "\(bad) of \(list.count) things are not as they should be")
    }

    mutating func addKernel() {
        add(.good, "kernel", SystemFacts.kernelVersion)
        do throws(LinkError) {
            let adapters = try Adapter.all()
            add(.good, "sockets", "this user may open Bluetooth channels")
            if adapters.isEmpty { add(.bad, "adapter", "the kernel knows none") }
        } catch {
            add(.bad, "sockets", error.reason)
        }
        if SystemFacts.firstLine(of: "/sys/module/bluetooth/parameters/enable_ecred") == "Y" {
            add(
                .note, "kernel",
                "enhanced credits are on, which had a run of bugs; `modprobe bluetooth "
                    + "enable_ecred=0` switches them off")
        }
    }

    mutating func addDaemon(_ bluetoothd: Bluetoothd) async {
        guard await bluetoothd.isRunning else {
            let failure = Bluetoothd.loadFailure.map { "\($0.reason) (\($0.loaderError))" }
            let reason =
                failure ?? "it does not run, or D-Bus does not: `systemctl start bluetooth`"
            return add(
                .bad, "bluetoothd", reason + "; listening and dialing by address work without it")
        }
        let version = SystemFacts.bluetoothdVersion ?? "of a version that it does not tell"
        add(.good, "bluetoothd", version)
        let arguments = await bluetoothd.processNumber.map(SystemFacts.commandLine) ?? []
        let namesPlugins = arguments.contains { $0.hasPrefix("-P") || $0.hasPrefix("--noplugin") }
        if !namesPlugins, !arguments.isEmpty {
            add(
                .note, "bluetoothd",
                "it runs all of its plugins, of which some ask to pair with a device that "
                    + "connects (`--noplugin=battery,hog,midi,input` leaves them out)")
        }
        if let channels = SystemFacts.attChannels(of: arguments), channels != 1 {
            add(
                .note, "bluetoothd",
                "it opens channels of its own to a device that connects, which may confuse the "
                    + "kernel; `Channels = 1` below `[GATT]` in /etc/bluetooth/main.conf ends that")
        }
    }

    mutating func addAdapter(_ adapter: AdapterInspection) {
        if let failure = adapter.state.failure(of: adapter.name) {
            add(.bad, adapter.name, failure.reason)
        } else {
            add(.good, adapter.name, "\(adapter.address), on")
        }
        if !adapter.roles.isEmpty, !adapter.roles.contains("peripheral") {
            add(.bad, adapter.name, "it cannot advertise; it can scan and dial")
        }
        if let (active, free) = adapter.advertisements, free == 0 {
            add(
                .bad, adapter.name,
                "all of its \(active) advertisements are in use; end the programs that use them")
        }
        if adapter.addressType == "public" {
            add(
                .note, adapter.name,
                "it advertises the address that was burned in, by which it can be followed; "
                    + "`btmgmt privacy on` hides it where the kernel and adapter can")
        }
        if adapter.alias == SystemFacts.hostName {
            add(
                .note, adapter.name,
                "it tells the host's name to whoever connects; `bluetoothctl system-alias NAME` "
                    + "changes that")
        }
    }
}
