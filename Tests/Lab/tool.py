#!/usr/bin/python3
"""Tests/Lab/tool.py: `blesec listen` and `blesec connect` from end to end, over kernel L2CAP
sockets between hci0 and hci1. Runs in the laboratory: Tests/Lab/run tool.

    Tests/Lab/tool.py [NAME ...]      all tests, or those whose names contain a NAME
"""

import ctypes
import hashlib
import os
import pwd
import queue
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BLESEC = Path(os.environ.get("BLESEC_TOOL", ROOT / ".build/release/blesec"))
XX = "Noise_XX_25519_ChaChaPoly_SHA256"
# An address that no device has: the addresses of the laboratory's controllers begin with 00:AA.
ABSENT_ADDRESS = "AA:BB:CC:DD:EE:01"
MEBIBYTE = 1 << 20

# The exit statuses, as in `blesec --help`.
USAGE, NO_PEER, REFUSED, TIMED_OUT, PROTOCOL, UNTRUSTED = 64, 68, 69, 75, 76, 77


class Tool:
    """A running `blesec`, whose standard error is read as it arrives. The file `given` is its standard
    input, and its standard output goes to the file `written`."""

    def __init__(self, test, *arguments, given=os.devnull, written=os.devnull, user=None):
        self.arguments = arguments
        self.lines = []
        self.unread = queue.SimpleQueue()
        with open(given, "rb") as standard_input, open(written, "wb") as standard_output:
            self.process = subprocess.Popen(
                [BLESEC, *map(str, arguments)], stdin=standard_input, stdout=standard_output,
                stderr=subprocess.PIPE, text=True, user=user, group=user and "nogroup",
                extra_groups=[] if user else None, cwd="/")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        test.addCleanup(self.end)

    def read(self):
        for line in self.process.stderr:
            self.unread.put(line.rstrip("\n"))
        self.unread.put(None)

    def line(self, beginning, within=30):
        """The next line of standard error that begins with the given text, within so many seconds."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self.unread.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no '{beginning}' in {within} s, but {self.lines}") from None
            if line is None:
                raise AssertionError(f"the tool ended without '{beginning}': {self.lines}")
            self.lines.append(line)
            if line.startswith(beginning):
                return line

    def status(self, within):
        """The exit status; the tool must end within that many seconds."""
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.arguments} still runs after {within} s") from None
        self.reader.join(5)
        self.collect_lines()
        return status

    def collect_lines(self):
        """Collects what has arrived, and returns all lines of standard error up to now."""
        while not self.unread.empty():
            line = self.unread.get()
            if line is not None:
                self.lines.append(line)
        return self.lines

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


class LabTests(unittest.TestCase):
    """The base of the test classes that run tools: keys, files and expectations."""

    @classmethod
    def setUpClass(cls):
        listing = mgmt("list").splitlines()
        cls.address = dict(line.split()[:2] for line in listing)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="blesec-lab-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)
        self.keys = {}
        for name in ("dialer", "listener", "stranger"):
            outcome = subprocess.run(
                [BLESEC, "keygen", self.folder / name], capture_output=True, text=True, check=True)
            self.keys[name] = dict(line.split(": ", 1) for line in outcome.stdout.splitlines())

    def pin(self, who):
        """The options with which a tool accepts this device's key."""
        return ("--peer", self.keys[who]["fingerprint"])

    def given(self, name, content):
        """Writes the content to a file, for the standard input of a tool, and returns the file's path."""
        path = self.folder / f"{name}.given"
        path.write_bytes(content)
        path.chmod(0o644)
        return path

    # Expecting

    def expect(self, tool, status, message, within):
        """Expects that the tool ends in time, with the status, and that its last line has the message."""
        begun = time.monotonic()
        self.assertEqual(tool.status(within), status, tool.lines)
        self.assertTrue(tool.lines, "the tool printed no line")
        self.assertRegex(tool.lines[-1], f"^blesec: .*{message}")
        print(f"   {time.monotonic() - begun:5.1f} s, {status}, {tool.lines[-1]}", flush=True)

    def expect_content(self, path, content):
        self.assertEqual(path.stat().st_size, len(content))
        self.assertEqual(digest(path.read_bytes()), digest(content))


class ToolTests(LabTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # `there` is what the dialer sends, and `back` what the listener sends.
        cls.bytes = {name: random.Random(name).randbytes(8 * MEBIBYTE) for name in ("there", "back")}

    # Starting

    def listen(self, *options, credential=None, **streams):
        credential = credential or ("--identity", self.folder / "listener")
        tool = Tool(self, "listen", "l2cap:any", "--adapter", "hci1", *credential, *options, **streams)
        endpoint = tool.line("listening on ").removeprefix("listening on ")
        self.assertRegex(endpoint, rf"^l2cap:{self.address['hci1']}/0x[89A-F][0-9A-F]$")
        return tool, endpoint

    def connect(self, endpoint, *options, credential=None, **streams):
        credential = credential or ("--identity", self.folder / "dialer")
        return Tool(self, "connect", endpoint, "--adapter", "hci0", *credential, *options, **streams)

    def certify(self, *names):
        """Makes a private authority and certificates; returns the options of each device by name."""
        def authority(command, *words):
            outcome = subprocess.run(
                [BLESEC, "ca", command, self.folder / "ca", *words], capture_output=True, text=True,
                check=True)
            return dict(line.split(": ", 1) for line in outcome.stdout.splitlines())

        authority("init")
        credentials = {}
        for name in names:
            prefix = self.folder / f"certified-{name}"
            issued = authority("issue", "--uri", f"blesec://lab/{name}", "--out", prefix)
            self.keys.setdefault(name, {})["certificate"] = issued["fingerprint"]
            credentials[name] = (
                "--certificate", f"{prefix}.pem", "--key", f"{prefix}.key", "--authority",
                self.folder / "ca/ca.pem", "--revoked", self.folder / "ca/ca.crl")
        return credentials

    def ready_line(self, peer, certified=False):
        """The line that a tool prints when its channel is ready."""
        if certified:
            key = self.keys[peer]["certificate"]
            return f"channel ready: TLS1.3 with {key}, blesec://lab/{peer}"
        return f"channel ready: {XX} with {self.keys[peer]['fingerprint']}"

    def connected_tools(self, from_dialer, from_listener, user=None, certified=False):
        """A listener and a dialer, with pinned keys or with certificates, whose channel is ready; and
        the files with their output."""
        written = [self.folder / "listener.written", self.folder / "dialer.written"]
        credentials = self.certify("listener", "dialer") if certified else {}
        trust = lambda who: () if certified else self.pin(who)
        listener, endpoint = self.listen(
            *trust("dialer"), credential=credentials.get("listener"), given=self.given("back", from_listener),
            written=written[0], user=user)
        dialer = self.connect(
            endpoint, *trust("listener"), credential=credentials.get("dialer"),
            given=self.given("there", from_dialer), written=written[1], user=user)
        for tool, peer in ((dialer, "listener"), (listener, "dialer")):
            self.assertEqual(tool.line("channel ready: "), self.ready_line(peer, certified))
        return listener, dialer, *written

    # Transfers

    def move_eight_mebibytes(self, user=None, certified=False):
        before = {name: packets(name) for name in ("hci0", "hci1")}
        begun = time.monotonic()
        listener, dialer, at_listener, at_dialer = self.connected_tools(
            self.bytes["there"], self.bytes["back"], user=user, certified=certified)
        self.assertEqual(dialer.status(240), 0, dialer.lines)
        self.assertEqual(listener.status(20), 0, listener.lines)
        seconds = time.monotonic() - begun
        self.expect_content(at_listener, self.bytes["there"])
        self.expect_content(at_dialer, self.bytes["back"])
        # A packet holds at most 188 bytes of data. So these counts show that the data went through the
        # controllers.
        for name in before:
            self.assertGreater(packets(name) - before[name], 8 * MEBIBYTE // 188)
        print(f"   {seconds:5.1f} s, {16 * MEBIBYTE / seconds / 1000:.0f} kB/s", flush=True)

    def test_transfer(self):
        """8 MiB each way arrive unchanged over Noise XX, with pinned keys"""
        self.move_eight_mebibytes()

    def test_transfer_as_nobody(self):
        """8 MiB each way arrive unchanged when both tools run as the user nobody"""
        for name in self.keys:
            os.chown(self.folder / name, pwd.getpwnam("nobody").pw_uid, -1)
        self.move_eight_mebibytes(user="nobody")

    def test_transfer_with_certificates(self):
        """8 MiB each way arrive unchanged over TLS, with certificates of a private authority"""
        self.move_eight_mebibytes(certified=True)

    def test_both_engines(self):
        """a listener with both engines serves a Noise peer and a TLS peer at the same time"""
        credentials = self.certify("listener", "tls-dialer")
        content = {name: self.bytes["there"][: 2 * MEBIBYTE + len(name)] for name in ("noise", "tls")}
        content["tls"] = content["tls"][::-1]
        written = self.folder / "listener.written"
        listener, endpoint = self.listen(
            "--keep", *self.pin("dialer"), "--peer-uri", "blesec://lab/tls-dialer",
            *credentials["listener"], written=written)
        dialers = [
            self.connect(
                endpoint, *self.pin("listener"), given=self.given("noise", content["noise"])),
            self.connect(
                endpoint, credential=credentials["tls-dialer"],
                given=self.given("tls", content["tls"])),
        ]
        for dialer, certified in zip(dialers, (False, True)):
            self.assertEqual(dialer.line("channel ready: "), self.ready_line("listener", certified))
        # Neither dialer has ended when both are ready, so the listener serves both at the same time.
        self.assertEqual([dialer.process.poll() for dialer in dialers], [None, None])
        for dialer in dialers:
            self.assertEqual(dialer.status(120), 0, dialer.lines)
        listener.line("channel complete with ")
        listener.line("channel complete with ")
        listener.process.terminate()
        listener.status(10)
        permitted_outputs = (content["noise"] + content["tls"], content["tls"] + content["noise"])
        self.assertIn(digest(written.read_bytes()), [digest(output) for output in permitted_outputs])

    def test_nothing_to_send(self):
        """when neither side sends data, both tools succeed"""
        listener, dialer, at_listener, at_dialer = self.connected_tools(b"", b"")
        self.assertEqual(dialer.status(20), 0, dialer.lines)
        self.assertEqual(listener.status(20), 0, listener.lines)
        self.expect_content(at_listener, b"")
        self.expect_content(at_dialer, b"")

    # The peer has another key

    def test_unpinned_listener(self):
        """a dialer that finds a key other than the pinned one reports that, and writes no data"""
        listener, endpoint = self.listen(
            *self.pin("dialer"), "--timeout", "8", given=self.given("secret", b"secret"))
        dialer = self.connect(endpoint, *self.pin("stranger"), written=self.folder / "written")
        self.expect(dialer, UNTRUSTED, "is not among the expected ones", within=6)
        self.expect(listener, TIMED_OUT, "within 8 s", within=12)
        self.assertEqual((self.folder / "written").read_bytes(), b"")

    def test_unpinned_dialer(self):
        """a dialer whose key the listener did not pin is refused, and the listener keeps waiting"""
        listener, endpoint = self.listen(*self.pin("stranger"), "--timeout", "8")
        dialer = self.connect(endpoint, *self.pin("listener"), given=self.given("x", b"x"))
        self.expect(dialer, REFUSED, "the peer refuses this identity", within=6)
        listener.line("blesec: no channel with ", within=6)
        self.expect(listener, TIMED_OUT, "within 8 s", within=12)

    # The link is lost

    def tools_in_transfer(self):
        """A listener and a dialer in the middle of a long transfer; and for each, the file with its output
        and the content that the other sends."""
        content = random.Random("endless").randbytes(32 * MEBIBYTE)
        listener, dialer, at_listener, at_dialer = self.connected_tools(content, content[::-1])
        deadline = time.monotonic() + 60
        while min(at_listener.stat().st_size, at_dialer.stat().st_size) < 128 * 1024:
            self.assertLess(time.monotonic(), deadline, "less than 128 KiB arrived in 60 s")
            time.sleep(0.05)
        return listener, dialer, (at_listener, content), (at_dialer, content[::-1])

    def expect_proper_prefix(self, path, content):
        """Expects that the output is a prefix of what was sent, and not all of it."""
        written = path.read_bytes()
        self.assertLess(len(written), len(content))
        self.assertEqual(digest(written), digest(content[: len(written)]))

    def test_cut_link(self):
        """a link that is cut in the middle of a transfer is an error on both sides"""
        listener, dialer, *outputs = self.tools_in_transfer()
        mgmt("disconnect", self.address["hci1"], "hci0")
        for tool in (dialer, listener):
            self.expect(tool, PROTOCOL, "the link ended before the peer said that", within=5)
        for path, content in outputs:
            self.expect_proper_prefix(path, content)

    def test_killed_peer(self):
        """a peer that is killed in the middle of a transfer is an error at the other side"""
        listener, dialer, (at_listener, there), _ = self.tools_in_transfer()
        dialer.process.kill()
        self.expect(listener, PROTOCOL, "the link ended before the peer said that", within=5)
        self.expect_proper_prefix(at_listener, there)

    def test_interrupted(self):
        """after SIGINT at one side, the other side reports an interruption instead of a complete channel"""
        listener, dialer, *outputs = self.tools_in_transfer()
        listener.process.send_signal(signal.SIGINT)
        self.expect(listener, 130, "interrupted", within=15)
        self.expect(dialer, PROTOCOL, "interrupted", within=15)
        for path, content in outputs:
            self.expect_proper_prefix(path, content)

    # The peer is silent

    def test_silent_listener(self):
        """a listener that accepts the link and sends no answer is given up after 5 seconds"""
        with bound_socket(self.address["hci1"]) as silent_listener:
            endpoint = f"l2cap:{self.address['hci1']}/0x{start_listening(silent_listener):02X}"
            dialer = self.connect(endpoint, *self.pin("listener"))
            self.expect(dialer, TIMED_OUT, "within 5 s", within=10)

    def test_silent_listener_with_timeout(self):
        """--timeout bounds the wait for a silent listener"""
        with bound_socket(self.address["hci1"]) as silent_listener:
            endpoint = f"l2cap:{self.address['hci1']}/0x{start_listening(silent_listener):02X}"
            dialer = self.connect(endpoint, *self.pin("listener"), "--timeout", "2")
            self.expect(dialer, TIMED_OUT, "within 2 s", within=4)

    def test_silent_dialer(self):
        """a silent dialer is dropped, and the listener serves the next dialer"""
        listener, endpoint = self.listen(*self.pin("dialer"), written=self.folder / "written")
        with bound_socket(self.address["hci0"]) as silent_dialer:
            connect_socket(silent_dialer, self.address["hci1"], int(endpoint[-2:], 16))
            failure = listener.line("blesec: no channel with ", within=10)
            self.assertIn("within 5 s", failure)
            self.assertEqual(received_until_close(silent_dialer), b"")
        dialer = self.connect(endpoint, *self.pin("listener"), given=self.given("late", b"late"))
        self.assertEqual(dialer.status(20), 0, dialer.lines)
        self.assertEqual(listener.status(20), 0, listener.lines)
        self.expect_content(self.folder / "written", b"late")

    def test_stopped_peer(self):
        """a peer that is stopped in the middle of a transfer is given up"""
        listener, dialer, (at_listener, there), (at_dialer, back) = self.tools_in_transfer()
        listener.process.send_signal(signal.SIGSTOP)
        self.expect(dialer, TIMED_OUT, "within (30|60) s", within=75)
        listener.process.send_signal(signal.SIGCONT)
        # The resumed listener reports what it notices first: that the link has ended, or that the time for
        # the rest of a record has passed.
        self.assertIn(listener.status(10), (PROTOCOL, TIMED_OUT), listener.lines)
        self.assertRegex(listener.lines[-1], "^blesec: (the link ended before|a record was begun)")
        self.expect_proper_prefix(at_listener, there)
        self.expect_proper_prefix(at_dialer, back)

    def test_random_bytes(self):
        """a dialer that sends random bytes is dropped, and the listener keeps waiting"""
        listener, endpoint = self.listen(*self.pin("dialer"), "--timeout", "6")
        with bound_socket(self.address["hci0"]) as raw_dialer:
            connect_socket(raw_dialer, self.address["hci1"], int(endpoint[-2:], 16))
            raw_dialer.send(random.Random(1).randbytes(400))
            listener.line("blesec: no channel with ", within=3)
        self.expect(listener, TIMED_OUT, "within 6 s", within=9)

    # No peer

    def test_wrong_psm(self):
        """a PSM without a listener is reported, with the exit status for no peer"""
        listener, endpoint = self.listen(*self.pin("dialer"), "--timeout", "8")
        wrong_endpoint = endpoint[:-2] + ("F1" if endpoint[-2:] == "F0" else "F0")
        dialer = self.connect(wrong_endpoint, *self.pin("listener"))
        self.expect(dialer, NO_PEER, "nobody listens", within=6)
        self.expect(listener, TIMED_OUT, "within 8 s", within=12)

    def test_absent_address(self):
        """a dial to an address that no device has ends at --timeout"""
        begun = time.monotonic()
        dialer = self.connect(f"l2cap:{ABSENT_ADDRESS}/0x80", *self.pin("listener"), "--timeout", "3")
        self.expect(dialer, TIMED_OUT, "(no answer came in time|within 3 s)", within=6)
        self.assertGreaterEqual(time.monotonic() - begun, 3)

    # Bad arguments

    def test_bad_endpoints(self):
        """an invalid endpoint, or an adapter that does not exist, is refused within 3 seconds"""
        here = self.address["hci1"]
        for endpoint, adapter, status, message in (
            (f"l2cap:{here}/0x80", "hci9", NO_PEER, "hci9"),
            (f"l2cap:{here}/0x100", "hci0", USAGE, "0x100"),
            (f"l2cap:{here}", "hci0", USAGE, "PSM"),
            ("l2cap:AA:BB:CC:DD:EE/0x80", "hci0", USAGE, "AA:BB:CC:DD:EE"),
            ("l2cap:any", "hci0", USAGE, "to dial"),
        ):
            with self.subTest(endpoint=endpoint, adapter=adapter):
                dialer = Tool(self, "connect", endpoint, "--adapter", adapter, "--anyone")
                self.expect(dialer, status, re.escape(message), within=3)

    def test_adapter_that_is_off(self):
        """an adapter that is off is reported, with the exit status for no peer"""
        mgmt("power", "off", "hci0")
        self.addCleanup(mgmt, "power", "on", "hci0")
        dialer = self.connect(f"l2cap:{self.address['hci1']}/0x80", "--anyone")
        self.expect(dialer, NO_PEER, "hci0", within=3)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def run_lab_script(script, *arguments):
    return subprocess.run(
        ["/usr/bin/python3", "-IS", ROOT / "lab" / script, *arguments],
        stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout


def mgmt(*arguments):
    return run_lab_script("mgmt.py", *arguments)


def packets(name):
    """The number of data packets that the host has sent to the controller with this name."""
    return int(re.search(r'"acl_tx": (\d+)', run_lab_script("packets.py", name))[1])


# Sockets for a peer that is not blesec. Python's own bind and connect cannot express a Low Energy
# address, so the C library is called with <bluetooth/l2cap.h>'s sockaddr_l2.

LE_PUBLIC = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def call(function, sock, address, psm):
    raw = bytes(int(byte, 16) for byte in reversed(address.split(":")))
    where = struct.pack(
        "=H2s6sHBx", socket.AF_BLUETOOTH, struct.pack("<H", psm), raw, 0, LE_PUBLIC)
    if function(sock.fileno(), where, len(where)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def bound_socket(address):
    """A socket bound to this adapter; `start_listening` or `connect_socket` comes next."""
    sock = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_STREAM, socket.BTPROTO_L2CAP)
    call(LIBC.bind, sock, address, 0)
    sock.settimeout(20)
    return sock


def start_listening(sock):
    """Makes the socket listen, and returns the PSM that the kernel chose."""
    sock.listen(4)
    return sock.getsockname()[1]


def received_until_close(sock):
    """All bytes until the other side closes, which the kernel may report as a reset."""
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def connect_socket(sock, address, psm):
    sock.setblocking(True)
    call(LIBC.connect, sock, address, psm)
    sock.settimeout(20)


class Result(unittest.TextTestResult):
    """Prints what each test checks, and how long the test took."""

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()
        print(f"-- {test.shortDescription()}", flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        print(f"   {time.monotonic() - self.begun:5.1f} s in all", flush=True)


def main(names, tests=None):
    loader = unittest.TestLoader()
    if names:
        loader.testNamePatterns = [f"*{name}*" for name in names]
    runner = unittest.TextTestRunner(
        stream=sys.stdout, resultclass=Result, verbosity=0, tb_locals=False)
    result = runner.run(loader.loadTestsFromTestCase(tests or ToolTests))
    # A test with several failed subtests counts once.
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    skipped = len(result.skipped)
    # A failure before the first test counts as one failed test.
    count = max(result.testsRun, failed + skipped)
    passed = count - failed - skipped
    print(f"{count} tests, {passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if result.wasSuccessful() and result.testsRun and not skipped else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
