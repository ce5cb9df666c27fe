#!/usr/bin/python3
"""Tests/Lab/pairing.py: two devices pair, knowing only a service, and then find each other by name.
Runs in the laboratory: Tests/Lab/run pairing.
"""

import queue
import signal
import subprocess
import sys
import threading
import time

from discovery import SCAN_OPTIONS, SERVICE, DiscoveryTests
from tool import BLESEC, main

ADAPTERS = {"alice": "hci0", "bob": "hci1"}


class Device:
    """A running `blesec`, whose lines are read as they arrive."""

    def __init__(self, test, who, command, *words):
        self.lines, self.errors = queue.SimpleQueue(), queue.SimpleQueue()
        self.seen = []
        test.seen[who] = self.seen
        self.test = test
        self.process = subprocess.Popen(
            [BLESEC, command, *words, "--adapter", ADAPTERS[who], "--state", test.folder / f"{who}.state",
             *SCAN_OPTIONS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=self.read, args=(stream, lines), daemon=True).start()
        test.addCleanup(self.kill)

    def read(self, stream, lines):
        for line in stream:
            self.seen.append(line.rstrip("\n"))
            lines.put(line.rstrip("\n"))
        lines.put(None)

    def line(self, lines, beginning, within):
        """The rest of the next line that begins with this text, within so many seconds."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line `{beginning}`: {self.test.seen}")
            if line.startswith(beginning):
                return line[len(beginning):]

    def wait_for_end(self, within=60):
        """Waits until the command ends, and returns its exit status."""
        return self.process.wait(within)

    def kill(self):
        self.process.kill()
        self.process.wait()


class PairingTests(DiscoveryTests):
    def setUp(self):
        super().setUp()
        # What the last command of each device has printed.
        self.seen = {}

    def pair(self, way, *options):
        """Pairs by `--code` or `--uri`; alice shows the code or the URI, and bob gets it."""
        alice = Device(self, "alice", "pair", "--service", SERVICE, "--name", "bob", way, *options)
        shown = alice.line(alice.errors, f"{way[2:]}: ", 30)
        # An invitation contains the service by which bob finds alice, so bob needs no target.
        where = [] if way == "--uri" else [f"service:{SERVICE}"]
        bob = Device(self, "bob", "pair", *where, "--name", "alice", f"{way}={shown}")
        results = [
            device.line(device.lines, f"paired: {name} ", 90)
            for device, name in ((alice, "bob"), (bob, "alice"))]
        self.assertEqual([alice.wait_for_end(), bob.wait_for_end()], [0, 0], [alice.seen, bob.seen])
        self.assertNotEqual(*results)
        return results

    def chat(self, text):
        """Chats by name until each side has the other's line, and then ends both."""
        chats = {
            who: Device(self, who, "chat", f"peer:{peer}", "--service", SERVICE)
            for who, peer in (("alice", "bob"), ("bob", "alice"))}
        for who, chat in chats.items():
            chat.process.stdin.write(f"{text} from {who}\n")
            chat.process.stdin.flush()
        for who, peer in (("alice", "bob"), ("bob", "alice")):
            chat = chats[who]
            chat.line(chat.lines, f"{text} from {peer}", 90)
        for chat in chats.values():
            chat.process.send_signal(signal.SIGINT)
        for chat in chats.values():
            chat.wait_for_end()
        # By now the side that made the link has ended the link. Otherwise the next command might not find
        # its peer.
        linked = subprocess.run(["/usr/bin/hcitool", "con"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(" LE ", linked)

    def test_pairing_code(self):
        """two devices pair by a code, knowing only a service, and then chat by name twice"""
        self.pair("--code")
        for text in ("first", "second"):
            self.chat(text)

    def test_pairing_uri(self):
        """two devices pair by an invitation, knowing only a service, and then chat by name"""
        self.pair("--uri")
        self.chat("first")

    def test_pairing_wrong(self):
        """a wrong code is refused, and then neither device knows the other"""
        alice = Device(self, "alice", "pair", "--service", SERVICE, "--name", "bob", "--code")
        code = alice.line(alice.errors, "code: ", 30)
        wrong_code = "000000" if code != "000000" else "000001"
        bob = Device(self, "bob", "pair", f"service:{SERVICE}", "--name", "alice", "--code", wrong_code)
        self.assertEqual(bob.wait_for_end(90), 69, bob.seen)
        alice.process.send_signal(signal.SIGINT)
        self.assertEqual(alice.wait_for_end(), 130, alice.seen)
        for who in ADAPTERS:
            listed = subprocess.run(
                [BLESEC, "peers", "list", "--state", self.folder / f"{who}.state"], capture_output=True, text=True)
            self.assertEqual((listed.returncode, listed.stdout), (0, ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test_pairing"], PairingTests))
