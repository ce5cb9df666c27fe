#!/usr/bin/python3
"""Tests/Lab/gatt.py: the byte stream over GATT, through bluetoothd with its default number of ATT
channels. Runs in the laboratory: Tests/Lab/run gatt.

    Tests/Lab/gatt.py [NAME ...]      all tests, or those whose names contain a NAME
"""

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

from discovery import OTHER_SERVICE, PYTHON, SCAN_OPTIONS, SERVICE, Process
from gatt_peer import (
    ATT, DATA, END, GRANT, OPEN, TO_DIALER, TO_LISTENER, fragment, opening)
from tool import MEBIBYTE, ROOT, XX, LabTests, Tool, digest, main

ENHANCED_ATT = 0x27  # the PSM of the channels that ATT may open beside its fixed channel


class GATTTests(LabTests):
    def listen(self, *options, service=SERVICE, adapter="hci1", who="listener", **streams):
        tool = Tool(
            self, "listen", "--service", service, "--transport", "gatt", "--adapter", adapter,
            "--identity", self.folder / who, *options, **streams)
        self.assertEqual(
            tool.line("advertising "), f"advertising {service} on {adapter}: gatt")
        return tool

    def connect(self, *options, adapter="hci0", who="dialer", **streams):
        return Tool(
            self, "connect", f"service:{SERVICE}", "--adapter", adapter, "--identity",
            self.folder / who, *SCAN_OPTIONS, *options, **streams)

    def test_stream(self):
        """a listener without L2CAP is found, and a channel runs over its GATT stream"""
        written = [self.folder / "listener.written", self.folder / "dialer.written"]
        listener = self.listen(
            *self.pin("dialer"), given=self.given("back", b"back"), written=written[0])
        begun = time.monotonic()
        dialer = self.connect(
            *self.pin("listener"), "--timeout", "50", given=self.given("there", b"there"),
            written=written[1])
        while written[1].stat().st_size == 0 and dialer.process.poll() is None:
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)
        self.expect_content(written[0], b"there")
        self.expect_content(written[1], b"back")
        print(f"   {seconds:.1f} s to the first byte", flush=True)

    def test_chosen(self):
        """a dialer with --transport gatt uses the stream, even if the listener accepts L2CAP channels"""
        listener = Tool(
            self, "listen", "--service", SERVICE, "--adapter", "hci1", "--identity",
            self.folder / "listener", *self.pin("dialer"))
        listener.line(f"advertising {SERVICE} on hci1: l2cap:")
        dialer = self.connect(
            *self.pin("listener"), "--transport", "gatt", "--timeout", "50",
            given=self.given("there", bytes(MEBIBYTE // 16)))
        dialer.line("channel ready: ", within=60)
        self.assertEqual(open_channel_ends(range(0x80, 0x100)), 0)
        self.assertEqual(dialer.status(60), 0, dialer.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)

    def test_independent(self):
        """an independent dialer for the stream exchanges data with the listener at the smallest MTU"""
        content, written = random.Random("back").randbytes(2000), self.folder / "written"
        listener = self.listen(
            "--anyone", "--direct", "--protocol", XX, given=self.given("back", content),
            written=written)
        peer = Process(
            self, PYTHON, ROOT / "Tests/Lab/gatt_peer.py", self.address["hci0"],
            self.address["hci1"], XX, 2000)
        peer.line("handshake done")
        self.assertEqual(peer.line("received "), f"received {digest(content)}")
        peer.line("ended")
        self.assertEqual(listener.status(30), 0, listener.lines)
        self.expect_content(written, bytes(index % 251 for index in range(2000)))

    def test_mebibyte(self):
        """1 MiB arrives unchanged over several ATT channels while a third device forges fragments"""
        content = random.Random("there").randbytes(MEBIBYTE)
        back = random.Random("back").randbytes(MEBIBYTE // 16)
        written = [self.folder / "listener.written", self.folder / "dialer.written"]
        listener = self.listen(
            *self.pin("dialer"), "--keep", given=self.given("back", back), written=written[0])
        dialer = self.connect(
            *self.pin("listener"), "--timeout", "50", given=self.given("there", content),
            written=written[1])
        dialer.line("channel ready: ", within=60)
        begun = time.monotonic()
        self.assertGreaterEqual(
            open_channel_ends([ENHANCED_ATT]), 2, "ATT has only its fixed channel")
        third, to_listener = self.third_device()
        forged_count = 0
        while dialer.process.poll() is None:
            self.assertLess(time.monotonic(), begun + 240, f"{written[0].stat().st_size} bytes arrived")
            for value in forged_fragments(third, forged_count):
                third.write(to_listener, value)
                forged_count += 1
            time.sleep(0.5)
        seconds = time.monotonic() - begun
        self.assertEqual(dialer.status(5), 0, dialer.lines)
        listener.line("channel complete with ")
        self.expect_content(written[0], content)
        self.expect_content(written[1], back)
        self.assertGreater(forged_count, 50)
        print(
            f"   {seconds:.1f} s, {len(content + back) / seconds / 1000:.0f} kB/s, {forged_count} forged "
            "fragments meanwhile", flush=True)
        # The forged fragments did reach the listener: now that the listener serves no other device, it answers
        # the third device's open fragment.
        third.write(to_listener, opening(0xABCD))
        answer = third.notified.get(timeout=20)
        while answer[:3] != fragment(OPEN, 0xABCD)[:3]:
            answer = third.notified.get(timeout=20)

    def third_device(self):
        """An ATT client at hci2 that has subscribed at the listener, and the handle that it writes to."""
        # A virtual controller with a link accepts a second one only from a controller that has as many
        # links. The listener's controller, hci1, has one link, so hci2 is connected to hci3 first.
        self.listen("--anyone", service=OTHER_SERVICE, adapter="hci3")
        link_to_hci3 = ATT(self.address["hci2"], self.address["hci3"])
        self.addCleanup(link_to_hci3.socket.close)
        third = ATT(self.address["hci2"], self.address["hci1"])
        self.addCleanup(third.socket.close)
        third.subscribe(third.handle(TO_DIALER))
        return third, third.handle(TO_LISTENER)


def forged_fragments(third, any_stream):
    """Fragments that would harm the dialer's stream if the listener accepted them from the third device.
    They are made from the latest notification, since each subscriber gets the dialer's notifications.
    `any_stream` is an arbitrary stream number. Until a notification has come, it also stands for the number
    of the dialer's stream."""
    value = None
    while not third.notified.empty():
        value = third.notified.get()
    stream, number, limit = struct.unpack_from(">HHH", value, 1) if value else (any_stream, 0, 0)
    yield opening(stream)
    yield opening(any_stream)
    yield fragment(END, stream, limit & 0xFFFF)
    yield fragment(GRANT, stream, number, limit + 500 & 0xFFFF)
    for ahead in range(4):
        yield fragment(DATA, stream, limit - 16 + ahead & 0xFFFF, limit, b"forged")


def open_channel_ends(psms):
    """The number of ends of open L2CAP channels with these PSMs. All controllers belong to this kernel,
    so each channel has two ends here."""
    debug = Path("/sys/kernel/debug")
    if not (debug / "bluetooth").exists():
        subprocess.run(["/usr/bin/mount", "-t", "debugfs", "debugfs", debug], check=True)
    channels = [line.split() for line in (debug / "bluetooth/l2cap").read_text().splitlines()]
    connected = "1"
    return sum(fields[4] == connected and int(fields[5]) in psms for fields in channels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], tests=GATTTests))
