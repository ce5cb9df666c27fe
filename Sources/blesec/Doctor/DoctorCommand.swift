internal import BLESec
internal import BLESecToolKit

/// `blesec doctor`
enum DoctorCommand {
    private static let root = Option(
        name: "--root", value: "DIR",
        help:
            "Read the system's files below DIR instead of /: DIR/etc/bluetooth/main.conf, DIR/sys "
            + "and so on. This is for a container in which the host's files are at DIR. With this "
            + "option, only these files and this user's rights are checked, and neither "
            + "bluetoothd's answers nor the adapters.")

    static let command = Command(
        name: "blesec doctor", summary: "check whether this machine is ready for Bluetooth",
        options: [root, .json],
        description: [
            "Checks the kernel, bluetoothd, its plugins and configuration, the adapters and their "
                + "open links, the switches of rfkill and this user's permissions, and prints a "
                + "line for each finding. A line that begins with `ok` reports that a thing is as it "
                + "should be. A line that begins with `bad` reports a fault and, in most cases, what "
                + "to do. A line that begins with `note` reports no fault, but a useful fact, or "
                + "something that could not be determined.",
            "The exit status is 68 if anything is not as it should be.",
            "With --json, a finding has the members grade, subject and text, and remedy if there is "
                + "one.",
        ],
        examples: [
            "blesec doctor": "Find faults before you try anything else.",
            "blesec doctor --root /host": "Check the files of the system below /host.",
        ],
        statuses: [.success, .usage, .noInput, .noPeer, .inputOutput], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        if let path = arguments.value(root) {
            let facts = SystemFacts(root: path)
            guard !path.isEmpty, facts.names(in: "/") != nil else {
                throw ChannelError(.noSuchFile, "\(path) is no folder that can be read")
            }
            var findings = Findings(facts)
            findings.addKernel()
            findings.addRights(BluetoothdAnswer.notAsked)
            findings.addSwitches()
            findings.addConfiguration(process: facts.bluetoothdProcess)
            return try findings.print()
        }
        var findings = Findings(SystemFacts())
        findings.addKernel()
        findings.addSockets()
        let bluetoothd = await Bluetoothd.connect()
        // Includes the user's rights and the configuration.
        await findings.addBluetoothd(bluetoothd)
        findings.addSwitches()
        for adapter in await bluetoothd.inspection { findings.addAdapter(adapter) }
        if await bluetoothd.isRunning, await bluetoothd.adapters.isEmpty {
            findings.add(.bad, "adapter", "none; plug one in, or load its driver's firmware")
        }
        await bluetoothd.close()
        try findings.print()
    }
}
