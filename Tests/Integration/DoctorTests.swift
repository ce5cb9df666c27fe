import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec doctor`, with the files of a system that the test makes.
    @Suite struct DoctorTests {
        private let folder = ScratchFolder()
        private let daemon = "/usr/libexec/bluetooth/bluetoothd"

        /// Writes files below the root, and makes their folders.
        private func write(_ files: [String: [UInt8]]) throws {
            for (path, bytes) in files {
                let parent = path.split(separator: "/").dropLast().joined(separator: "/")
                let made = try Subprocess.run("mkdir", ["-p", folder.file(parent)])
                try #require(made.status == 0, "\(made.errors)")
                folder.write(path, bytes)
            }
        }

        private func write(_ files: [String: String]) throws {
            try write(files.mapValues { Array($0.utf8) })
        }

        /// Writes the files of a system in which bluetoothd runs with these arguments.
        /// bluetoothd's program has these plugins.
        private func writeDaemon(_ plugins: [String], _ arguments: [String]) throws {
            let program = plugins.map { "profiles/\($0).c\0" }.joined()
            try write([
                "proc/77/comm": "bluetoothd\n",
                "proc/77/cmdline": ([daemon] + arguments).map { $0 + "\0" }.joined(),
                daemon: "\u{7F}ELF\0proprofiles/\0" + program,
            ])
        }

        private func run(_ options: String...) throws -> Subprocess.Outcome {
            try Tool.run(arguments: ["doctor", "--root", folder.path] + options)
        }

        /// The lines about a subject.
        private func lines(_ subject: String) throws -> [String] {
            let outcome = try run()
            #expect(outcome.status == 0 || outcome.status == 68, "\(outcome.errors)")
            return outcome.text.split(separator: "\n").map(String.init).filter {
                $0.contains(" \(subject): ")
            }
        }

        @Test(
            "doctor names bluetoothd's plugins that use a link, and a remedy that leaves them out")
        func plugins() throws {
            try writeDaemon(["battery/battery", "input/hog", "midi/midi", "audio/bap"], ["-d"])
            let line = try #require(try lines("plugins").first)
            #expect(
                line.hasPrefix("note  plugins: bluetoothd runs battery, hog, midi: "), "\(line)")
            #expect(line.contains("`systemctl edit bluetooth`"), "\(line)")
            #expect(
                line.contains("`ExecStart=\(daemon) -d --noplugin=battery,hog,midi`"), "\(line)")
            try writeDaemon(["input/hog"], ["-nd", "src/*", "--kernel", "UUID", "--debug", "-E"])
            let options = "-nd src/* --kernel UUID --debug -E"
            let secondLine = try lines("plugins").first
            #expect(
                secondLine?.contains("`ExecStart=\(daemon) \(options) --noplugin=hog`") == true,
                "\(secondLine ?? "")")
        }

        @Test(
            "doctor reads bluetoothd's options as bluetoothd does",
            arguments: [
                (["-P", "battery,h*"], "midi"), (["-Pn", "battery"], "hog, midi"),
                (["-P", "bap", "--noplugin=hog"], "battery, midi"),
                (["--noplugin", "battery hog midi"], nil), (["-nP", "*"], nil),
                (["--plugin=m?di"], "midi"), (["-p", "hog,midi", "-P", "hog"], "midi"),
                (["-E", "-P", "hog,midi"], "battery, bap"),
                (["--experimental", "--plugin", "bap"], "bap"),
                (["-d", "P*"], "battery, hog, midi"),
                (["--noplugin"], "battery, hog, midi"), (["--", "-P*"], "battery, hog, midi"),
            ] as [([String], String?)])
        func options(_ arguments: [String], _ running: String?) throws {
            try writeDaemon(["battery/battery", "input/hog", "midi/midi", "audio/bap"], arguments)
            let line = try #require(try lines("plugins").first)
            let expected = running.map { "note  plugins: bluetoothd runs \($0): " }
            #expect(line.hasPrefix(expected ?? "ok    plugins: none"), "\(line)")
        }

        @Test(
            "doctor shows no `ExecStart` line if systemd would change a character of bluetoothd's arguments"
        )
        func strangeArguments() throws {
            try writeDaemon(["input/hog"], ["--configfile=/a b\u{1B}$x"])
            let line = try #require(try lines("plugins").first)
            #expect(line.hasSuffix("; start bluetoothd with `--noplugin=hog`"), "\(line)")
        }

        @Test("doctor ignores another user's process that is called bluetoothd")
        func otherUsersProcess() throws {
            try writeDaemon(["input/hog"], [])
            // Only root can give a folder away.
            guard geteuid() == 0 else { return }
            try #require(unsafe chown(folder.file("proc/77"), 65_534, 65_534) == 0)
            let line = try #require(try lines("plugins").first)
            #expect(line.hasPrefix("note  plugins: bluetoothd is not among"), "\(line)")
        }

        @Test("`Experimental` in main.conf lets the plugins bap and rap run")
        func experimental() throws {
            try writeDaemon(["audio/bap", "ranging/rap"], [])
            #expect(try lines("plugins").first?.hasPrefix("ok ") == true)
            try write(["etc/bluetooth/main.conf": "[General]\nExperimental = true\n"])
            #expect(try lines("plugins").first?.contains("runs bap, rap: ") == true)
            try write(["etc/bluetooth/main.conf": "[General]\nExperimental = 1\n"])
            #expect(try lines("plugins").first?.contains("runs bap, rap: ") == true)
        }

        @Test(
            "doctor says whether bluetoothd opens channels of its own, or may do so by default",
            arguments: [
                (nil, "may open"), ("3", "opens"), ("0x2", "opens"), ("1", nil), ("0", "may open"),
            ] as [(String?, String?)])
        func attributeChannels(_ setting: String?, _ verb: String?) throws {
            try writeDaemon([], [])
            if let setting {
                try write(["etc/bluetooth/main.conf": "[GATT]\nChannels = \(setting)\n"])
            }
            let found = try lines("bluetoothd")
            #expect(found.count == (verb == nil ? 0 : 1), "\(found)")
            if let verb {
                let beginning = "note  bluetoothd: it \(verb) channels of its own to a device"
                #expect(found.first?.hasPrefix(beginning) == true, "\(found)")
            }
        }

        @Test("doctor says what the connection intervals are, and notes slow ones")
        func intervals() throws {
            #expect(
                try lines("intervals") == [
                    "ok    intervals: an interval of 30 to 50 ms, latency 0, a supervision timeout of "
                        + "420 ms (the kernel's defaults)"
                ])
            try write([
                "etc/bluetooth/main.conf":
                    "# LE\n[LE]\nMinConnectionInterval=7\nMaxConnectionInterval = 0x320\n"
                    + "ConnectionSupervisionTimeout=500\n"
            ])
            let line = try #require(try lines("intervals").first)
            #expect(line.hasPrefix("note  intervals: an interval of 8.75 to 1000 ms, "), "\(line)")
            #expect(line.contains("a supervision timeout of 5000 ms (from /etc/"), "\(line)")
            #expect(line.contains(": slow"), "\(line)")
            #expect(line.contains("`MaxConnectionInterval=12`"), "\(line)")
        }

        @Test("doctor reads a setting that begins with 0 as octal digits, as bluetoothd does")
        func octalInterval() throws {
            try write(["etc/bluetooth/main.conf": "[LE]\nMinConnectionInterval=010\n"])
            let line = try #require(try lines("intervals").first)
            #expect(line.hasPrefix("ok    intervals: an interval of 10 to 50 ms, "), "\(line)")
        }

        @Test(
            "doctor reports a setting of an interval that is no number, is out of range, or contradicts another",
            arguments: [
                ("MinConnectionInterval=5", "is `5`, and not a number from 6 to 3200"),
                ("MinConnectionInterval=08", "is `08`, and not a number from 6 to 3200"),
                ("ConnectionLatency=many", "is `many`, and not a number from 0 to 499"),
                ("MaxConnectionInterval=99999999999999999999", "and not a number from 6 to 3200"),
                ("MinConnectionInterval=41", "the shortest interval is longer than the longest"),
                ("ConnectionLatency=10", "the supervision timeout is not longer than"),
            ])
        func badIntervals(_ setting: String, _ text: String) throws {
            try write(["etc/bluetooth/main.conf": "[LE]\n\(setting)\n"])
            #expect(try lines("intervals").contains { $0.hasPrefix("note ") && $0.contains(text) })
        }

        @Test("doctor shows an adapter's intervals if they differ from the configured ones")
        func kernelIntervals() throws {
            let kernel = "sys/kernel/debug/bluetooth/hci0/"
            try write([
                "sys/class/bluetooth/hci0/x": "", "sys/class/bluetooth/hci0:1/x": "",
                kernel + "conn_min_interval": "6\n", kernel + "conn_max_interval": "9\n",
                kernel + "conn_latency": "0\n", kernel + "supervision_timeout": "42\n",
            ])
            let line = try #require(try lines("hci0").first)
            #expect(line.hasPrefix("ok    hci0: an interval of 7.5 to 11.25 ms, "), "\(line)")
        }

        @Test("doctor reports which adapters rfkill blocks, how, and the remedy")
        func switches() throws {
            #expect(try lines("rfkill").first?.hasPrefix("note  rfkill: /sys/class/rfkill") == true)
            let rfkill = "sys/class/rfkill/rfkill"
            try write([
                rfkill + "0/type": "wlan\n", rfkill + "0/soft": "1\n", rfkill + "0/hard": "1\n",
            ])
            #expect(try lines("rfkill") == ["ok    rfkill: no switch for Bluetooth"])
            try write([
                rfkill + "1/type": "bluetooth\n", rfkill + "1/name": "hci0\n",
                rfkill + "1/soft": "1\n", rfkill + "1/hard": "0\n",
                rfkill + "2/type": "bluetooth\n", rfkill + "2/name": "hci1\n",
                rfkill + "2/soft": "0\n", rfkill + "2/hard": "1\n",
                rfkill + "3/type": "bluetooth\n",
            ])
            let found = try lines("rfkill")
            #expect(
                found == [
                    "bad   rfkill: hci0 is blocked; `rfkill unblock bluetooth` frees it",
                    "bad   rfkill: a switch of the machine, or its firmware, blocks hci1; turn that "
                        + "switch on", "note  rfkill: whether rfkill3 is blocked is not known",
                ])
            #expect(try run().status == 68)
        }

        @Test(
            "doctor notes a known fault of Linux 6.1, and only for that version",
            arguments: [("6.1.0-18-amd64", true), ("6.10.2", false), ("6.12.1", false)])
        func kernel(_ release: String, _ isNoted: Bool) throws {
            try write(["proc/sys/kernel/osrelease": release + "\n"])
            let found = try lines("kernel")
            #expect(found.first == "ok    kernel: Linux \(release)")
            #expect(found.contains { $0.contains("`bluetoothctl power off`") } == isNoted)
        }

        @Test(
            "doctor says whether the user is in the group bluetooth, and which capabilities are missing"
        )
        func rights() throws {
            try write([
                "etc/group": "bluetooth:x:\(getegid()):\n",
                "proc/self/status": "Name:\tx\nCapEff:\t0000000000001000\n",
            ])
            let found = try lines("rights")
            let user = geteuid() == 0 ? "root" : "in the group bluetooth"
            #expect(found.contains("ok    rights: this user is \(user)"), "\(found)")
            #expect(found.contains { $0.contains("without CAP_NET_RAW: ") }, "\(found)")
        }

        @Test("with --json, a remedy has a member of its own")
        func json() throws {
            try writeDaemon(["input/hog"], [])
            let line = try #require(
                try run("--json").text.split(separator: "\n").first { $0.contains("plugins") })
            #expect(line.hasPrefix("{\"grade\": \"note\", \"subject\": \"plugins\", \"text\": \""))
            #expect(line.contains("\", \"remedy\": \"type `systemctl edit bluetooth`"), "\(line)")
        }

        @Test("an empty system gives lines that say what is not known")
        func emptySystem() throws {
            let outcome = try run()
            #expect(outcome.status == 0, "\(outcome.errors)")
            for line in [
                "ok    kernel: Linux of unknown version",
                "note  plugins: bluetoothd is not among the processes: which plugins run is not known",
                "note  rights: which capabilities this process has is not known",
            ] { #expect(outcome.text.contains(line + "\n"), "\(outcome.text)") }
        }

        @Test(
            "if bluetoothd ignores main.conf, doctor reports which line is wrong",
            arguments: [
                ([UInt8]("[LE]\nrubbish\n".utf8), 2), ([UInt8]("Key=1\n".utf8), 1),
                ([UInt8]("[LE]\n=1\n".utf8), 2), ([0x5B, 0x61, 0x5D, 0x0A, 0xFF, 0x3D, 0x31], 2),
                ([0, 1, 2, 3, 0x0A], 1),
            ])
        func brokenConfiguration(_ bytes: [UInt8], _ line: Int) throws {
            try write(["etc/bluetooth/main.conf": bytes])
            let found = try lines("main.conf")
            #expect(found.first?.contains("line \(line) of /etc/bluetooth/main.conf") == true)
        }

        @Test(
            "doctor still prints its lines if files are too large, are not regular files, or hold rubbish"
        )
        func absurdFiles() throws {
            try write([
                "etc/bluetooth/x": "", "sys/class/rfkill/x": "", "proc/1/comm": "bluetoothd",
            ])
            let made = try Subprocess.run(
                "sh",
                [
                    "-c",
                    """
                    cd '\(folder.path)' && truncate -s 100M etc/bluetooth/main.conf etc/group &&
                    mkfifo proc/1/cmdline && mkdir -p proc/sys/kernel/osrelease proc/self &&
                    ln -s /dev/zero proc/self/status
                    """,
                ])
            try #require(made.status == 0, "\(made.errors)")
            let outcome = try run()
            #expect(outcome.status == 0, "\(outcome.errors)")
            for text in [
                "note  main.conf: /etc/bluetooth/main.conf has more than 1048576 bytes",
                "note  plugins: bluetoothd's command line cannot be read",
                "note  rights: which capabilities",
            ] { #expect(outcome.text.contains(text), "\(outcome.text)") }
            let rubbish = (0..<60_000).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 7) }
            try write([
                "proc/2/comm": rubbish, "proc/3/comm": Array("bluetoothd\n".utf8),
                "proc/3/cmdline": rubbish, "sys/class/rfkill/rfkill0/type": rubbish,
                daemon: rubbish,
            ])
            _ = try Subprocess.run("rm", ["-r", folder.file("proc/1")])
            let secondOutcome = try run()
            #expect(secondOutcome.status == 0, "\(secondOutcome.errors)")
            #expect(
                secondOutcome.text.contains("note  plugins: bluetoothd's program cannot be read"))
        }

        @Test("without a message bus, doctor says so and ends")
        func noBus() throws {
            let outcome = try Subprocess.run(
                Tool.path, ["doctor"],
                environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder.file("none"))"])
            #expect(outcome.status == 68)
            #expect(outcome.text.contains("bad   bluetoothd: it does not run"), "\(outcome.text)")
        }

        @Test("a root that does not exist gives exit status 66")
        func noRoot() throws {
            Tool.expect(
                try Tool.run("doctor", "--root", folder.file("none")), status: 66,
                "none is no folder that can be read")
        }
    }
}
