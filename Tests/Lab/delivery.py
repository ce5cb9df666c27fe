#!/usr/bin/python3
"""Tests/Lab/delivery.py: everything that two tools with --persist send arrives exactly once.
Runs in the laboratory: Tests/Lab/run delivery. BLESEC_CUTS=N cuts the link N times instead of 8; with 50 or
more, bluetoothd is restarted twice instead of once.
"""

import os
import random
import sys
import threading
import time

from chat import ChatTests
from discovery import SERVICE, power, restart_bluetoothd
from tool import main

CUTS = int(os.environ.get("BLESEC_CUTS", 8))
RESTARTS = 2 if CUTS >= 50 else 1


class Feed(threading.Thread):
    """Writes random bytes in pieces of random lengths to a pipe, until it is told to stop."""

    def __init__(self, path, seed):
        super().__init__(daemon=True)
        os.mkfifo(path)
        # Opened for both reading and writing, so that no `open` waits for the FIFO's other end.
        self.pipe = os.open(path, os.O_RDWR)
        self.random, self.sent, self.stop = random.Random(seed), bytearray(), threading.Event()

    def run(self):
        while not self.stop.is_set():
            piece = self.random.randbytes(self.random.choice([1, 50, 900, 6_000]))
            self.sent += piece
            while piece:
                piece = piece[os.write(self.pipe, piece):]
            time.sleep(0.02)
        os.close(self.pipe)


class DeliveryTests(ChatTests):
    def wait_for_bytes(self, written, count, within, tools):
        """Waits until `count` more bytes are in each file. A failure shows what `tools`, the listener and the
        dialer, said last."""
        wanted = [path.stat().st_size + count for path in written]
        deadline = time.monotonic() + within
        while any(path.stat().st_size < size for path, size in zip(written, wanted)):
            if time.monotonic() > deadline:
                sizes = [path.stat().st_size for path in written]
                said = "\n--\n".join("\n".join(tool.collect_lines()[-30:]) for tool in tools)
                self.fail(f"{sizes} of {wanted} bytes after {within} s\n{said}")
            if self.has_stopped_dialing(tools[1]):
                print("   the dialer's kernel dials no more: hci0 is switched off and on", flush=True)
                power("hci0", False)
                power("hci0", True)
                deadline = time.monotonic() + within
            time.sleep(0.05)

    def has_stopped_dialing(self, dialer):
        """Whether three dials in a row got no answer, although the peer was heard: kernel 6.1 sometimes dials
        no more (docs/laboratory.md). After a true result, only later dials are counted."""
        lines = dialer.collect_lines()
        ready = max((index for index, line in enumerate(lines) if line.startswith("channel ready")), default=0)
        unanswered = sum("no answer came in time" in line for line in lines[ready:])
        if unanswered < 3:
            return False
        # This line begins like the tool's own line, so the next call counts only later dials.
        lines.append("channel ready again after hci0 is switched off and on")
        return True

    def test_delivery_cut(self):
        """bytes arrive exactly once over cuts of the link and restarts of bluetoothd"""
        written = [self.folder / f"{who}.written" for who in ("listener", "dialer")]
        given = [self.folder / f"{who}.given" for who in ("listener", "dialer")]
        feeds = [Feed(path, seed) for seed, path in enumerate(given)]
        listener = self.listen(*self.pin("dialer"), "--persist", given=given[0], written=written[0])
        dialer = self.connect(
            f"service:{SERVICE}", *self.pin("listener"), "--persist", "--verbose", given=given[1],
            written=written[1])
        for feed in feeds:
            feed.start()
        generator = random.Random(1)
        begun = time.monotonic()
        restarts = [CUTS * (number + 1) // (RESTARTS + 1) for number in range(RESTARTS)]
        cuts = 0
        while cuts < CUTS:
            self.wait_for_bytes(
                written, generator.randrange(20_000), within=60, tools=[listener, dialer])
            if cuts in restarts:
                restarts.remove(cuts)
                restart_bluetoothd()
                self.wait_for_bytes(written, 1, within=60, tools=[listener, dialer])
            cuts += self.cut()
        for feed in feeds:
            feed.stop.set()
        self.assertEqual(dialer.status(90), 0, dialer.lines[-20:])
        self.assertEqual(listener.status(40), 0, listener.lines[-20:])
        for feed, path in zip(feeds, reversed(written)):
            feed.join(10)
            self.assertTrue(path.read_bytes() == feed.sent, f"{path} has other bytes")
        print(
            f"   {cuts} cuts and {RESTARTS} restarts in {time.monotonic() - begun:.0f} s; "
            f"{len(feeds[0].sent)} and {len(feeds[1].sent)} bytes", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test_delivery"], DeliveryTests))
