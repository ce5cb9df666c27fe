internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// How bluetoothd answered this user's request for its objects.
enum BluetoothdAnswer { case objects, refused, noAnswer, notAsked }

/// What the doctor has found, in the order of its output.
struct Findings {
    enum Grade: String { case good = "ok", note, bad }

    private struct Finding {
        let grade: Grade
        let subject, text: String
        let remedy: String?
    }

    private let facts: SystemFacts
    private var list: [Finding] = []

    init(_ facts: SystemFacts) { self.facts = facts }

    mutating func add(_ grade: Grade, _ subject: String, _ text: String, remedy: String? = nil) {
        list.append(Finding(grade: grade, subject: subject, text: text, remedy: remedy))
    }

    /// Prints a line for each finding, and throws an error if any is bad.
    func print() throws(ChannelError) {
        for finding in list {
            let grade = finding.grade.rawValue
            let word = grade + String(repeating: " ", count: 5 - grade.count)
            let remedy = finding.remedy.map { "; " + $0 } ?? ""
            try StandardOutput.print(
                line: "\(word) \(finding.subject): \(finding.text)\(remedy)",
                or: [
                    ("grade", .string(grade)), ("subject", .string(finding.subject)),
                    ("text", .string(finding.text)),
                ] + (finding.remedy.map { [("remedy", .string($0))] } ?? []))
        }
        let bad = list.count { $0.grade == .bad }
        guard bad > 0 else { return }
        throw ChannelError(
            .noSuchAdapter, "\(bad) of \(list.count) things are not as they should be")
    }

    // MARK: - The kernel

    mutating func addKernel() {
        let release = facts.kernelRelease
        add(.good, "kernel", "Linux " + (release ?? "of unknown version"))
        if let release, release == "6.1" || release.hasPrefix("6.1.") || release.hasPrefix("6.1-") {
            add(
                .note, "kernel",
                "if the adapter itself ends a dial with an error, Linux 6.1 starts no further dial: "
                    + "every later dial times out",
                remedy: "`bluetoothctl power off` and then `bluetoothctl power on` help")
        }
        if facts.firstLine(of: "/sys/module/bluetooth/parameters/enable_ecred") == "Y" {
            add(
                .note, "kernel", "enhanced credits (enable_ecred) are on, which had several bugs",
                remedy: "`modprobe bluetooth enable_ecred=0` switches them off")
        }
    }

    mutating func addSockets() {
        do throws(LinkError) {
            let adapters = try Adapter.all()
            add(.good, "sockets", "this user may open Bluetooth channels")
            if adapters.isEmpty { add(.bad, "adapter", "the kernel knows none") }
        } catch {
            add(.bad, "sockets", error.reason)
        }
    }

    /// Adds the switches of rfkill that block Bluetooth.
    mutating func addSwitches() {
        let folder = "/sys/class/rfkill"
        guard let names = facts.names(in: folder) else {
            return add(
                .note, "rfkill",
                "\(folder) cannot be read: whether a switch blocks Bluetooth is not known")
        }
        var count = 0
        for name in names {
            let switchFolder = "\(folder)/\(name)"
            guard facts.firstLine(of: switchFolder + "/type") == "bluetooth" else { continue }
            count += 1
            let device = facts.firstLine(of: switchFolder + "/name") ?? name
            let soft = facts.number(in: switchFolder + "/soft")
            let hard = facts.number(in: switchFolder + "/hard")
            if hard == 1 {
                add(
                    .bad, "rfkill", "a switch of the machine, or its firmware, blocks \(device)",
                    remedy: "turn that switch on")
            }
            if soft == 1 {
                add(
                    .bad, "rfkill", "\(device) is blocked",
                    remedy: "`rfkill unblock bluetooth` frees it")
            }
            if soft == nil || hard == nil {
                add(.note, "rfkill", "whether \(device) is blocked is not known")
            }
        }
        if !list.contains(where: { $0.subject == "rfkill" }) {
            add(.good, "rfkill", count == 0 ? "no switch for Bluetooth" : "nothing is blocked")
        }
    }

    // MARK: - bluetoothd

    mutating func addBluetoothd(_ bluetoothd: Bluetoothd) async {
        let answer: BluetoothdAnswer
        let process: Int?
        if await bluetoothd.isRunning {
            answer = .objects
            process = await bluetoothd.processID
            let version = SystemFacts.bluetoothdVersion ?? "of unknown version"
            add(.good, "bluetoothd", version)
        } else if let failure = await bluetoothd.listingFailure {
            answer = failure.code == .permission ? .refused : .noAnswer
            process = facts.bluetoothdProcess
            add(.bad, "bluetoothd", failure.reason)
        } else {
            answer = .noAnswer
            process = facts.bluetoothdProcess
            let failure = Bluetoothd.loadFailure.map { "\($0.reason) (\($0.loaderError))" }
            let reason =
                failure ?? "it does not run, or D-Bus does not: `systemctl start bluetooth`"
            add(
                .bad, "bluetoothd", reason + "; listening and dialing by address work without it")
        }
        addRights(answer)
        addConfiguration(process: process)
    }

    /// Adds what this user may do.
    mutating func addRights(_ answer: BluetoothdAnswer) {
        let rights = UserRights(facts)
        let remedy = "`adduser USER bluetooth` as root, and log in again"
        switch (answer, rights.isInBluetoothGroup) {
        case (.refused, true?):
            add(
                .bad, "rights", "D-Bus's policy keeps this user from bluetoothd", remedy: "ask root"
            )
        case (.refused, _):
            add(.bad, "rights", "D-Bus's policy keeps this user from bluetoothd", remedy: remedy)
        case (.objects, _): add(.good, "rights", "this user may use bluetoothd")
        case (.noAnswer, _) where rights.isRoot, (.notAsked, _) where rights.isRoot:
            add(.good, "rights", "this user is root")
        case (_, true?): add(.good, "rights", "this user is in the group bluetooth")
        case (_, false?):
            add(
                .note, "rights",
                "this user is not in the group bluetooth, which some systems require",
                remedy: remedy)
        case (_, nil):
            add(.note, "rights", "whether this user may use bluetoothd is not known")
        }
        switch rights.missingCapabilities {
        case nil: add(.note, "rights", "which capabilities this process has is not known")
        case []?: break
        case let missing?:
            add(
                .good, "rights",
                "without \(missing.joined(separator: " and ")): blesec does not need this, but "
                    + "`btmgmt` and `btmon` do")
        }
    }

    /// Adds findings about bluetoothd's command line and configuration. `process` is bluetoothd's
    /// process ID; nil if bluetoothd is not found.
    mutating func addConfiguration(process: Int?) {
        let words = process.flatMap { facts.commandLine(of: $0) }
        if words == nil {
            add(
                .note, "plugins",
                process == nil
                    ? "bluetoothd is not among the processes: which plugins run is not known"
                    : "bluetoothd's command line cannot be read: which plugins run is not known")
        }
        let arguments = BluetoothdArguments(words ?? [])
        let configuration = readConfiguration(arguments.configurationPath)
        if words != nil { addPlugins(arguments, configuration) }
        guard let configuration else { return }
        // bluetoothd takes no other values than these.
        let channels = configuration.number("GATT", "Channels").flatMap {
            (1...5).contains($0) ? $0 : nil
        }
        if words != nil, channels.map({ $0 > 1 }) ?? true {
            let opens = channels == nil ? "may open" : "opens"
            let condition = channels == nil ? " (the default depends on its version)" : ""
            add(
                .note, "bluetoothd",
                "it \(opens) channels of its own to a device that connects\(condition), which may "
                    + "confuse the kernel",
                remedy:
                    "`Channels = 1` below `[GATT]` in \(arguments.configurationPath) prevents that")
        }
        addConnectionParameters(configuration, arguments.configurationPath)
    }

    /// Reads the configuration file, and adds its faults; nil if the file cannot be read.
    private mutating func readConfiguration(_ path: String) -> MainConfiguration? {
        switch facts.read(path) {
        case .bytes(let bytes):
            let configuration = MainConfiguration(bytes)
            if let line = configuration.faultyLine {
                add(
                    .note, "main.conf",
                    "line \(line) of \(path) is no setting, so bluetoothd ignores the whole file",
                    remedy: "correct that line, and run `systemctl restart bluetooth`")
            }
            return configuration
        case .absent: return MainConfiguration([])
        case .unreadable(let reason):
            add(.note, "main.conf", "\(path) \(reason): what it sets is not known")
            return nil
        }
    }

    private mutating func addPlugins(
        _ arguments: BluetoothdArguments, _ configuration: MainConfiguration?
    ) {
        guard let running = BluetoothdPlugins.running(arguments, configuration, facts) else {
            return add(
                .note, "plugins",
                "bluetoothd's program cannot be read: which plugins run is not known")
        }
        guard !running.isEmpty else {
            return add(.good, "plugins", "none that uses a link of another program")
        }
        let remedy =
            arguments.commandLine(leavingOut: running).map {
                "type `systemctl edit bluetooth`, and there `[Service]`, `ExecStart=` and "
                    + "`ExecStart=\($0)`, each in a line of its own; then `systemctl restart "
                    + "bluetooth`"
            } ?? "start bluetoothd with `--noplugin=\(running.joined(separator: ","))`"
        add(
            .note, "plugins",
            "bluetoothd runs \(running.joined(separator: ", ")): such plugins use the link of "
                + "another program, and some ask to pair with a device that connects",
            remedy: remedy)
    }

    /// Adds findings about the parameters of connections. `path` is that of the configuration file.
    private mutating func addConnectionParameters(
        _ configuration: MainConfiguration, _ path: String
    ) {
        for (key, range) in ConnectionParameters.settings {
            guard let text = configuration.text("LE", key) else { continue }
            if let number = configuration.number("LE", key), range.contains(number) { continue }
            add(
                .note, "intervals",
                "\(key) below [LE] in \(path) is `\(text.prefix(40))`, and not a number from "
                    + "\(range.lowerBound) to \(range.upperBound)",
                remedy: "correct or remove it")
        }
        let isSet = ConnectionParameters.settings.contains { setting in
            configuration.text("LE", setting.key) != nil
        }
        let source = isSet ? "from \(path)" : "the kernel's defaults"
        add(ConnectionParameters(configuration), "intervals", source, path)
        let adapters = (facts.names(in: "/sys/class/bluetooth") ?? []).filter {
            $0.hasPrefix("hci") && !$0.contains(":")
        }
        for adapter in adapters {
            guard let parameters = ConnectionParameters(adapter: adapter, facts),
                parameters != ConnectionParameters(configuration)
            else { continue }
            add(parameters, adapter, "from the kernel", path)
        }
    }

    private mutating func add(
        _ parameters: ConnectionParameters, _ subject: String, _ source: String, _ path: String
    ) {
        let remedy =
            "`MinConnectionInterval=6`, `MaxConnectionInterval=12` and `ConnectionLatency=0` below "
            + "`[LE]` in \(path) request 7.5 to 15 ms; then `systemctl restart bluetooth`"
        if let contradiction = parameters.contradiction {
            add(
                .note, subject,
                "\(parameters.text) (\(source)): \(contradiction), so the kernel may refuse them",
                remedy: remedy)
        } else if parameters.isSlow {
            add(
                .note, subject,
                "\(parameters.text) (\(source)): slow, since a link carries little in each "
                    + "interval",
                remedy: remedy)
        } else {
            add(.good, subject, "\(parameters.text) (\(source))")
        }
    }

    // MARK: - Adapters

    mutating func addAdapter(_ adapter: AdapterInspection) {
        if let failure = adapter.state.failure(of: adapter.name) {
            add(.bad, adapter.name, failure.reason)
        } else {
            add(.good, adapter.name, "\(adapter.address), on")
        }
        addLinks(of: adapter.name)
        if !adapter.roles.isEmpty, !adapter.roles.contains("peripheral") {
            add(.bad, adapter.name, "it cannot advertise; it can scan and dial")
        }
        if let (active, free) = adapter.advertisements, free == 0 {
            add(
                .bad, adapter.name, "all of its \(active) advertisements are in use",
                remedy: "end the programs that use them")
        }
        if adapter.addressType == "public" {
            add(
                .note, adapter.name,
                "it advertises the address that was burned in, by which it can be followed",
                remedy: "`btmgmt privacy on` hides it where the kernel and adapter can")
        }
        if adapter.isPairable {
            add(
                .note, adapter.name,
                "it is pairable: a device nearby can make bluetoothd ask whether to pair with it, "
                    + "which blesec never needs",
                remedy: "decline such a question, above all during a dial; `bluetoothctl pairable "
                    + "off` helps until another agent is registered")
        }
        if adapter.alias == facts.hostName {
            add(
                .note, adapter.name, "it shows the host's name to every device that connects",
                remedy: "`bluetoothctl system-alias NAME` changes that")
        }
    }

    /// Adds the PHYs of the adapter's open links.
    private mutating func addLinks(of name: String) {
        guard let adapter = try? Adapter.all().first(where: { $0.name == name }),
            let links = try? adapter.openLinks(), !links.isEmpty
        else { return }
        for (index, link) in links.enumerated() {
            do throws(LinkError) {
                if let phys = try adapter.phys(of: link) { add(phys, of: link, name) }
            } catch {
                let rest = links.count - index
                return add(
                    .note, name,
                    "\(rest == 1 ? "one link" : "\(rest) links"), whose PHY is not known: "
                        + error.reason,
                    remedy: error.code == .permission ? "`sudo blesec doctor` shows it" : nil)
            }
        }
    }

    private mutating func add(_ phys: LinkPHYs, of link: OpenLink, _ name: String) {
        let text = "the link to \(link.peer) \(phys)"
        if phys.sending == .le2M, phys.receiving == .le2M { return add(.good, name, text) }
        add(
            .note, name, text + ", which is slower than LE 2M",
            remedy:
                "`btmgmt --index \(name) phy` lists the PHYs that are selected for new links; the "
                + "same command with all of these, and LE2MTX LE2MRX, selects LE 2M too; the other "
                + "side has to allow it as well")
    }
}
