#!/usr/bin/python3
"""Tests/Lab/gatt.py: the byte stream over GATT, through bluetoothd with as many ATT channels as it
opens by default. Runs in the laboratory: Tests/Lab/run gatt.

    Tests/Lab/gatt.py [NAME ...]      all tests, or those whose names contain a NAME
"""

import ctypes
import os
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from tool import LIBC, MEBIBYTE, LabTests, Tool, main

SERVICE = "6f1d0a3c-9c5e-4b7e-8d2f-2a4c6e8f0b1d"
OTHER = "7a2e1b4d-0d6f-4c8f-9e30-3b5d7f901c2e"
TO_LISTENER = "7903d497-2cff-424e-8d0c-f3dfa6249c8a"
TO_DIALER = "d1422866-955a-43b7-90d4-07c24725ce48"
# A virtual controller reports who advertises only when scanning starts, and sometimes too early.
OFTEN = ("--rescan", "1", "--heard", "1")
OPEN, DATA, GRANT, END = 1, 2, 3, 4


class ATT:
    """A device that is not blesec and does without bluetoothd: ATT over a socket of the kernel's
    (Core specification, Vol 3, Part F)."""

    LE_PUBLIC, CHANNEL = 1, 4

    def __init__(self, test, adapter, peer):
        self.socket = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_SEQPACKET, socket.BTPROTO_L2CAP)
        test.addCleanup(self.socket.close)
        self.call(LIBC.bind, adapter)
        self.call(LIBC.connect, peer)
        self.answers = queue.SimpleQueue()
        self.notified = queue.SimpleQueue()
        threading.Thread(target=self.read, daemon=True).start()

    def call(self, function, address):
        raw = bytes(int(byte, 16) for byte in reversed(address.split(":")))
        where = struct.pack(
            "<HH6sHBx", socket.AF_BLUETOOTH, 0, raw, self.CHANNEL, self.LE_PUBLIC)
        if function(self.socket.fileno(), where, len(where)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def read(self):
        try:
            while unit := self.socket.recv(1024):
                if unit[0] == 0x1B:
                    self.notified.put(unit[3:])
                elif unit[0] == 0x02:  # the other side wants to know the MTU
                    self.socket.send(struct.pack("<BH", 0x03, 517))
                elif unit[0] % 2 == 0 and not unit[0] & 0x40:  # and whatever else, which is not here
                    self.socket.send(struct.pack("<BBHB", 0x01, unit[0], 0, 0x06))
                else:
                    self.answers.put(unit)
        except OSError:
            pass

    def ask(self, request):
        self.socket.send(request)
        return self.answers.get(timeout=20)

    def handle(self, characteristic):
        """Where a characteristic's value is."""
        wanted, first = uuid.UUID(characteristic).bytes[::-1], 1
        while True:
            answer = self.ask(struct.pack("<BHHH", 0x08, first, 0xFFFF, 0x2803))
            if answer[0] != 0x09:
                raise AssertionError(f"{characteristic} is not there")
            for start in range(2, len(answer), answer[1]):
                handle, _, value = struct.unpack_from("<HBH", answer, start)
                if answer[start + 5 : start + answer[1]] == wanted:
                    return value
                first = handle + 1

    def write(self, handle, value):
        """Without response."""
        self.socket.send(struct.pack("<BH", 0x52, handle) + value)

    def subscribe(self, handle):
        answer = self.ask(struct.pack("<BHH", 0x12, handle + 1, 1))
        assert answer == b"\x13", answer.hex()


def fragment(kind, stream, number=0, limit=32, payload=b""):
    return struct.pack(">BHHH", kind, stream, number, limit) + payload


def opening(stream):
    return fragment(OPEN, stream, payload=struct.pack(">BH", 1, 20))


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
            self.folder / who, *OFTEN, *options, **streams)

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
        self.same(written[0], b"there")
        self.same(written[1], b"back")
        print(f"   {seconds:.1f} s to the first byte", flush=True)

    def test_mebibyte(self):
        """1 MiB arrives as it was over several ATT channels, while a third device writes forged
        fragments to the same characteristic"""
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
        self.assertGreaterEqual(att_channels(), 2, "bluetoothd has only one channel for ATT")
        third, to_listener = self.third()
        count = 0
        while dialer.process.poll() is None:
            for value in forged(third, count):
                third.write(to_listener, value)
                count += 1
            time.sleep(0.2)
        seconds = time.monotonic() - begun
        self.assertEqual(dialer.status(5), 0, dialer.lines)
        listener.line("channel complete with ")
        self.same(written[0], content)
        self.same(written[1], back)
        self.assertGreater(count, 100)
        print(
            f"   {seconds:.1f} s, {len(content + back) / seconds / 1000:.0f} kB/s beside {count} "
            "forged fragments", flush=True)
        # It was heard all the time: now that nobody is served it is answered.
        third.write(to_listener, opening(0xABCD))
        answer = third.notified.get(timeout=20)
        while answer[:3] != fragment(OPEN, 0xABCD)[:3]:
            answer = third.notified.get(timeout=20)

    def third(self):
        """A device beside the two, which has subscribed, and where it writes to."""
        # A virtual controller takes one more link only from a controller that has as many.
        self.listen("--anyone", service=OTHER, adapter="hci3")
        self.beside = ATT(self, self.address["hci2"], self.address["hci3"])
        third = ATT(self, self.address["hci2"], self.address["hci1"])
        third.subscribe(third.handle(TO_DIALER))
        return third, third.handle(TO_LISTENER)


def forged(third, count):
    """What would harm a stream if it came from who has opened it, by what the third one overhears."""
    value = None
    while not third.notified.empty():
        value = third.notified.get()
    stream, number, limit = struct.unpack_from(">HHH", value, 1) if value else (count, 0, 0)
    yield opening(stream)
    yield opening(count)
    yield fragment(END, stream, limit & 0xFFFF)
    yield fragment(GRANT, stream, number, limit + 500 & 0xFFFF)
    for ahead in range(4):
        yield fragment(DATA, stream, limit - 16 + ahead & 0xFFFF, limit, b"forged")


def att_channels():
    """The channels of enhanced ATT that the kernel has open."""
    debug = Path("/sys/kernel/debug")
    if not (debug / "bluetooth").exists():
        subprocess.run(["/usr/bin/mount", "-t", "debugfs", "debugfs", debug], check=True)
    channels = [line.split() for line in (debug / "bluetooth/l2cap").read_text().splitlines()]
    connected, enhanced = "1", "39"  # 0x27, of the Core specification
    return sum(fields[4] == connected and fields[5] == enhanced for fields in channels)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], tests=GATTTests))
