#!/usr/bin/python3
"""Tests/Lab/discovery.py: peers find each other through bluetoothd, from advertisement to channel.
Runs in the laboratory: Tests/Lab/run discovery.

    Tests/Lab/discovery.py [NAME ...]      all tests, or those whose names contain a NAME
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from gatt_peer import ATT, open_channel
from tool import BLESEC, ROOT, TIMED_OUT, XX, LabTests, Tool, main, mgmt

PSM_CHARACTERISTIC = "abdd3056-28fa-441d-a470-55a75a52553a"
SERVICE = "6f1d0a3c-9c5e-4b7e-8d2f-2a4c6e8f0b1d"
OTHER_SERVICE = "7a2e1b4d-0d6f-4c8f-9e30-3b5d7f901c2e"
PYTHON = ROOT / ".build/venv/bin/python"
CONFIGURATION = Path("/run/lab/discovery.conf")
# A virtual controller reports an advertiser only when scanning or advertising starts. So the tools
# restart the scan every second, and one report of a peer is enough to dial it.
SCAN_OPTIONS = ("--rescan", "1", "--heard", "1")


class Process:
    """A running helper program, whose standard output and error are read as they arrive."""

    def __init__(self, test, *arguments):
        self.lines = []
        self.unread = queue.SimpleQueue()
        self.process = subprocess.Popen(
            list(map(str, arguments)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        test.addCleanup(self.end)

    def read(self):
        for line in self.process.stdout:
            self.unread.put(line.rstrip("\n"))
        self.unread.put(None)

    def line(self, beginning, within=40):
        """The next line that begins with the given text, within so many seconds."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self.unread.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no '{beginning}' in {within} s, but {self.lines}") from None
            if line is None:
                raise AssertionError(f"the helper ended without '{beginning}': {self.lines}")
            self.lines.append(line)
            if line.startswith(beginning):
                return line

    def send_newline(self):
        """Sends an empty line, at which the helper takes its next step."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class DiscoveryTests(LabTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # docs/discovery.md advises `Channels = 1`. With more, bluetoothd at the accepting side opens
        # L2CAP channels for ATT while the dialer opens its own channel, and the kernel confuses two
        # channels that are opened at the same time.
        CONFIGURATION.write_text("[GATT]\nChannels = 1\n\n[Policy]\nAutoEnable = true\n")
        restart_bluetoothd()
        deadline = time.monotonic() + 40
        while subprocess.run([BLESEC, "doctor"], capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "40 s after the start, doctor still finds a fault"

    def listen(self, *options, service=SERVICE, adapter="hci1", who="listener", **streams):
        tool = Tool(
            self, "listen", "--service", service, "--adapter", adapter, "--identity",
            self.folder / who, *options, **streams)
        line = tool.line(f"advertising {service} on {adapter}: ")
        self.assertRegex(line, rf"l2cap:{self.address[adapter]}/0x[89A-F][0-9A-F]$")
        return tool

    def connect(self, target, *options, adapter="hci0", who="dialer", **streams):
        return Tool(
            self, "connect", target, "--adapter", adapter, "--identity", self.folder / who,
            *SCAN_OPTIONS, *options, **streams)

    def exchange(self, *options, target=f"service:{SERVICE}", service=SERVICE):
        """Runs a listener, and a dialer that finds the listener. Returns the seconds from the dialer's
        start to the first byte that the dialer receives."""
        written = [self.folder / "listener.written", self.folder / "dialer.written"]
        listener = self.listen(
            *self.pin("dialer"), *options, service=service, given=self.given("back", b"back"),
            written=written[0])
        begun = time.monotonic()
        trust = () if target.startswith("peer:") else self.pin("listener")
        dialer = self.connect(
            target, *trust, "--timeout", "50", given=self.given("there", b"there"),
            written=written[1])
        while written[1].stat().st_size == 0 and dialer.process.poll() is None:
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)
        self.expect_content(written[0], b"there")
        self.expect_content(written[1], b"back")
        return seconds

    # Finding

    def test_found_by_name(self):
        """a PSM in the device's name leads to a channel"""
        print(f"   {self.exchange():.1f} s to the first byte", flush=True)

    def test_found_by_data(self):
        """a PSM in service data, or in a manufacturer's data, leads to a channel"""
        for way in ("service-data", "manufacturer-data"):
            with self.subTest(way=way):
                print(f"   {self.exchange('--advertise', way):.1f} s, {way}", flush=True)

    def test_found_by_characteristic(self):
        """a PSM that only the GATT characteristic contains leads to a channel"""
        print(f"   {self.exchange('--hide-psm'):.1f} s to the first byte", flush=True)

    def test_found_by_key(self):
        """peer:KEY finds the peer with the key, by blesec's own service"""
        key = self.keys["listener"]["fingerprint"]
        blesec_service = re.search(
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            subprocess.run([BLESEC, "scan", "--help"], capture_output=True, text=True).stdout)[0]
        self.exchange(target=f"peer:{key}", service=blesec_service)

    def test_scan(self):
        """scan prints one line for a device with the service, and nothing for another service"""
        self.listen("--anyone")

        def scan_command(service, seconds):
            return [BLESEC, "scan", "--service", service, "--adapter", "hci0", "--rescan", "1",
                    "--for", str(seconds), "--json"]

        # The first line stops this scan, because the time until a device is heard varies.
        with subprocess.Popen(scan_command(SERVICE, 60), stdout=subprocess.PIPE, text=True) as scan:
            line = scan.stdout.readline()
            scan.send_signal(signal.SIGINT)
            rest = scan.stdout.read()
        self.assertRegex(
            line, rf'"address": "{self.address["hci1"]}".*"tag": "[0-9a-f]{{8}}", "psm": (?:1[2-9]|2[0-5])\d,')
        self.assertEqual(rest, "", "a line follows the first one")
        other_scan = subprocess.run(
            scan_command(OTHER_SERVICE, 6), capture_output=True, text=True, timeout=60)
        self.assertEqual((other_scan.returncode, other_scan.stdout), (0, ""), other_scan.stderr)

    def test_unpinned_key(self):
        """a peer with an unpinned key is refused, and dialed at most six times in 25 seconds"""
        listener = self.listen(*self.pin("dialer"), "--keep")
        dialer = self.connect(f"service:{SERVICE}", *self.pin("stranger"), "--timeout", "25")
        self.expect(dialer, TIMED_OUT, "within 25 s", within=40)
        refused = [line for line in dialer.lines if "is not among the expected ones" in line]
        self.assertTrue(1 <= len(refused) <= 6, dialer.lines)
        self.assertIsNone(listener.process.poll())

    def test_scan_pauses(self):
        """a dialer that is limited to one link does not scan while it has that link"""
        self.listen(*self.pin("dialer"))
        dialer = self.connect(f"service:{SERVICE}", *self.pin("listener"), given="/dev/zero")
        dialer.line("channel ready: ")
        # One check is not enough, since a scan that is restarted every second is off for a moment.
        deadline = time.monotonic() + 30
        checks = 0
        while checks < 20:
            checks = 0 if discovering("hci0") else checks + 1
            self.assertLess(time.monotonic(), deadline, "the dialer goes on scanning")
            self.assertIsNone(dialer.process.poll(), dialer.lines)
            time.sleep(0.1)

    def test_fresh_psm(self):
        """after each channel, the characteristic has a fresh PSM, and all these PSMs accept channels"""
        listener = self.listen("--anyone", "--keep")
        advertised = int(listener.lines[-1][-2:], 16)
        ends = self.address["hci0"], self.address["hci1"]
        att = ATT(*ends)
        self.addCleanup(att.socket.close)
        handle = att.handle(PSM_CHARACTERISTIC)

        def read():
            return int.from_bytes(att.read_value(handle), "little")

        psms = [read()]
        for _ in range(3):
            # Without a channel, a second read returns the same PSM.
            self.assertEqual(read(), psms[-1])
            channel = open_channel(*ends, psms[-1])
            # A fresh PSM shows that the listener has accepted the channel.
            deadline = time.monotonic() + 20
            while (psm := read()) == psms[-1]:
                self.assertLess(time.monotonic(), deadline, psms)
            channel.close()
            psms.append(psm)
        self.assertEqual(psms[0], advertised)
        self.assertEqual(len(set(psms)), 4, psms)
        for psm in psms:
            open_channel(*ends, psm).close()
        self.assertIsNone(listener.process.poll())

    def test_doctor(self):
        """doctor finds no fault in the laboratory, and reports an adapter that is off"""
        def doctor():
            return subprocess.run([BLESEC, "doctor"], capture_output=True, text=True, timeout=30)

        report = doctor()
        self.assertEqual(report.returncode, 0, report.stdout + report.stderr)
        for beginning in ("ok    kernel: Linux ", "ok    bluetoothd: 5.", "ok    hci0: ", "ok    hci1: "):
            self.assertIn(beginning, report.stdout)
        power("hci1", False)
        self.addCleanup(power, "hci1", True)
        report = doctor()
        self.assertEqual(report.returncode, 68)
        self.assertRegex(report.stdout, "bad   hci1: .*bluetoothctl power on")

    # Other implementations and forged advertisements

    def bumble(self, *arguments):
        """Starts a Bumble device. Returns its process, and the name of the adapter that hears it."""
        peer = Process(self, PYTHON, ROOT / "Tests/Lab/bumble_peer.py", *arguments)
        adapter = peer.line("adapter ", within=90).split()[1]
        deadline = time.monotonic() + 40
        while adapter not in (state := powered()):
            self.assertLess(time.monotonic(), deadline, f"{adapter} is not up: {state}")
            time.sleep(0.2)
        self.address[adapter] = state[adapter]
        return peer, adapter

    def test_bumble_peer(self):
        """a Bumble device with Apple's characteristic and noiseprotocol exchanges data"""
        peer, adapter = self.bumble("peer", SERVICE, XX)
        peer.line("advertising ")
        sent = bytes(range(256)) * 40
        # The dialer's input stays open until all data has come back. At the end of its input, a dialer
        # in direct mode waits for one second of silence, because the peer does not confirm an end, and
        # Bumble may be silent for longer.
        given, written = self.folder / "there", self.folder / "written"
        os.mkfifo(given)
        feed = open(os.open(given, os.O_RDWR), "wb", buffering=0)
        self.addCleanup(feed.close)
        feed.write(sent)
        dialer = self.connect(
            f"service:{SERVICE}", "--anyone", "--direct", "--protocol", XX, "--timeout", "60",
            adapter=adapter, given=given, written=written)
        dialer.line("channel ready: ", within=70)
        deadline = time.monotonic() + 30
        while written.stat().st_size < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        report = subprocess.run([BLESEC, "doctor"], capture_output=True, text=True, timeout=30)
        self.assertRegex(
            report.stdout, f"note  {adapter}: the link to C3:BB:00:00:00:02 sends with LE 2M and receives with LE 1M")
        feed.close()
        peer.line(f"exchanged {len(sent)}")
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        # The peer reverses each message, and the dialer chooses the messages' lengths. So the order of
        # the bytes is not known here, and only their values are compared.
        self.assertEqual(sorted(written.read_bytes()), sorted(sent))

    def test_bumble_impostor(self):
        """a candidate on whose PSM another service answers is dialed again after a backoff"""
        peer, adapter = self.bumble("impostor", SERVICE, XX)
        peer.line("advertising ")
        dialer = self.connect(
            f"service:{SERVICE}", "--anyone", "--direct", "--protocol", XX, "--timeout", "90",
            adapter=adapter, given=self.given("there", b"there"), written=self.folder / "written")
        for _ in range(2):
            peer.line("opened ", within=60)
        peer.send_newline()
        dialer.line("channel ready: ", within=60)
        peer.line("exchanged 5")
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.expect_content(self.folder / "written", b"ereht")
        refused = [line for line in dialer.lines if line.startswith("blesec: no channel with ")]
        opened = [float(line.split()[1]) for line in peer.lines if line.startswith("opened ")]
        # Each dial opens one L2CAP channel and prints one line. The backoff before the next dial is 1 s,
        # then 2 s, each shortened at random by at most a half.
        self.assertIn(len(opened), (2, 3))
        self.assertEqual(len(refused), len(opened), dialer.lines)
        for number, (before, after) in enumerate(zip(opened, opened[1:])):
            self.assertGreater(after - before, 0.5 * 2**number, opened)
        # At most three other lines, among them the service that the tool looks for, and the channel.
        self.assertLessEqual(len(dialer.lines), len(refused) + 3, dialer.lines)

    def agree_to_pairing(self, adapter):
        """Runs an agent that answers yes to every question of bluetoothd. Returns when bluetoothd uses the agent."""
        agent = subprocess.Popen(
            ["/usr/bin/bluetoothctl", "--agent", "DisplayYesNo"], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)

        def answer():
            # The agent reads the line as an answer if it is asking, and as an unknown command if not.
            while agent.poll() is None:
                try:
                    agent.stdin.write("yes\n")
                    agent.stdin.flush()
                except OSError:
                    return
                time.sleep(0.2)

        threading.Thread(target=answer, daemon=True).start()
        deadline = time.monotonic() + 30
        while f"note  {adapter}: it is pairable: " not in (report := doctor()):
            self.assertLess(time.monotonic(), deadline, report)
            time.sleep(0.5)

    def pair_with_dialer(self, what):
        """A peer makes the dialer's machine pair. Expects that the dial ends and says why, and that bluetoothd
        has removed the peer with its keys."""
        peer, adapter = self.bumble("pairing", SERVICE, what)
        peer.line("advertising ")
        self.agree_to_pairing(adapter)
        dialer = self.connect(
            f"service:{SERVICE}", *self.pin("stranger"), "--timeout", "90", adapter=adapter)
        peer.line("paired", within=60)
        line = ""
        while "was paired over Bluetooth during the dial" not in line:
            line = dialer.line("blesec: no channel with C3:BB:00:00:00:02 (random): ")
        dialer.process.send_signal(signal.SIGINT)
        self.assertEqual(dialer.status(30), 130, dialer.lines)
        self.assertNotIn(f"/org/bluez/{adapter}/dev_C3_BB_00_00_00_02", known_objects())
        stored = Path("/var/lib/bluetooth") / self.address[adapter] / "C3:BB:00:00:00:02/info"
        self.assertFalse(stored.exists(), f"{stored} exists")

    def test_bumble_encrypted_channel(self):
        """a peer whose channel requires pairing ends the dial, and is not known to bluetoothd afterwards"""
        self.pair_with_dialer("channel")

    def test_bumble_encrypted_characteristic(self):
        """a peer whose PSM requires pairing ends the dial, and is not known to bluetoothd afterwards"""
        self.pair_with_dialer("characteristic")

    def test_bumble_central(self):
        """a Bumble central finds a listener and reads its PSM, and bluetoothctl shows the service"""
        peer, adapter = self.bumble("central", SERVICE)
        listener = self.listen("--anyone", adapter=adapter)
        shown = subprocess.run(
            ["/usr/bin/bluetoothctl", "show", self.address[adapter]], capture_output=True,
            text=True, timeout=20, stdin=subprocess.DEVNULL).stdout
        self.assertIn(SERVICE, shown)
        psm = int(listener.lines[-1][-2:], 16)
        self.assertEqual(peer.line("read ", within=60), f"read {psm:02x}00")

    def test_flood(self):
        """a thousand forged advertisements cause no dial and no output of connect, and use little memory"""
        peer, adapter = self.bumble("flood", SERVICE, 1000)
        dialer = Tool(
            self, "connect", f"service:{SERVICE}", "--adapter", adapter, "--anyone", "--heard", "8")
        dialer.line("looking for ")
        heard = self.folder / "heard"
        scan = Tool(
            self, "scan", "--service", SERVICE, "--adapter", adapter, "--json", written=heard)
        time.sleep(2)
        before = resident_kibibytes(dialer.process.pid)
        peer.send_newline()
        peer.line("flooded ", within=90)
        time.sleep(5)
        grown = resident_kibibytes(dialer.process.pid) - before
        self.assertIsNone(dialer.process.poll(), dialer.lines)
        dialer.process.send_signal(signal.SIGINT)
        self.assertEqual(dialer.status(30), 130, dialer.lines)
        scan.process.send_signal(signal.SIGINT)
        self.assertEqual(scan.status(30), 130, scan.lines)
        count = len(heard.read_text().splitlines())
        print(
            f"   {count} candidates, {grown} KiB more memory, {len(dialer.lines)} lines", flush=True)
        self.assertGreater(count, 200)
        self.assertLess(grown, 8192)
        # No peer was heard eight times with one tag, so none was dialed. The two lines say what the tool
        # looks for, and that it was interrupted.
        self.assertEqual(len(dialer.lines), 2, dialer.lines)


def power(adapter, value):
    """Switches an adapter on or off through bluetoothd. Bypassing bluetoothd may crash the kernel."""
    subprocess.run(
        ["/usr/bin/dbus-send", "--system", "--dest=org.bluez", "--print-reply",
         f"/org/bluez/{adapter}", "org.freedesktop.DBus.Properties.Set",
         "string:org.bluez.Adapter1", "string:Powered", f"variant:boolean:{str(value).lower()}"],
        stdout=subprocess.DEVNULL, check=True, timeout=20)


def powered():
    """The adapters that are on, with their addresses."""
    lines = [line.split() for line in mgmt("list").splitlines()]
    return {name: address for name, address, *settings in lines if "powered" in settings}


def doctor():
    """What `blesec doctor` prints."""
    return subprocess.run([BLESEC, "doctor"], capture_output=True, text=True, timeout=30).stdout


def known_objects():
    """What bluetoothd lists, as text."""
    return subprocess.run(
        ["/usr/bin/dbus-send", "--system", "--dest=org.bluez", "--print-reply", "/",
         "org.freedesktop.DBus.ObjectManager.GetManagedObjects"],
        capture_output=True, text=True, check=True, timeout=20).stdout


def discovering(adapter):
    """Whether bluetoothd scans with the adapter."""
    shown = subprocess.run(
        ["/usr/bin/dbus-send", "--system", "--dest=org.bluez", "--print-reply", f"/org/bluez/{adapter}",
         "org.freedesktop.DBus.Properties.Get", "string:org.bluez.Adapter1", "string:Discovering"],
        capture_output=True, text=True, check=True, timeout=20)
    return "boolean true" in shown.stdout


def resident_kibibytes(process):
    """The resident memory of the process with this number, in KiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1])


def restart_bluetoothd(meanwhile=lambda: None):
    """Kills bluetoothd, calls `meanwhile`, and starts bluetoothd with the tests' configuration."""
    (process,) = [
        int(entry.name) for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and process_name(entry) == "bluetoothd"]
    os.kill(process, signal.SIGKILL)
    meanwhile()
    subprocess.Popen(
        ["/usr/libexec/bluetooth/bluetoothd", "-n", "-f", CONFIGURATION], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def process_name(entry):
    """The name of a process; None if it has ended. A process that nobody has waited for still has an entry,
    but no arguments."""
    try:
        return (entry / "comm").read_text().strip() if (entry / "cmdline").read_bytes() else None
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], tests=DiscoveryTests))
