"""A device without blesec and without bluetoothd: the stream over GATT on a kernel socket, written from
docs/wire-format.md.

    gatt_peer.py ADAPTER LISTENER PROTOCOL COUNT

opens the stream at the listener, runs noiseprotocol as the initiator of a direct channel over the
stream, sends COUNT bytes, and prints the digest of the bytes that come back. ADAPTER and LISTENER are
Bluetooth addresses.
"""

import ctypes
import hashlib
import os
import queue
import socket
import struct
import sys
import threading
import uuid

TO_LISTENER = "7903d497-2cff-424e-8d0c-f3dfa6249c8a"
TO_DIALER = "d1422866-955a-43b7-90d4-07c24725ce48"
OPEN, DATA, GRANT, END = 1, 2, 3, 4
WINDOW = 32
SMALLEST_MTU, SMALLEST_FRAGMENT = 23, 20
LIBC = ctypes.CDLL(None, use_errno=True)


class ATT:
    """ATT over a kernel socket, by the Core Specification, Volume 3, Part F."""

    LE_PUBLIC, CHANNEL = 1, 4

    def __init__(self, adapter, peer):
        self.socket = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_SEQPACKET, socket.BTPROTO_L2CAP)
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
                elif unit[0] == 0x02:  # a request for a larger MTU, which is declined
                    self.socket.send(struct.pack("<BH", 0x03, SMALLEST_MTU))
                elif unit[0] % 2 == 0 and not unit[0] & 0x40:  # any other request, which is not supported
                    self.socket.send(struct.pack("<BBHB", 0x01, unit[0], 0, 0x06))
                else:
                    self.answers.put(unit)
        except OSError:
            pass

    def ask(self, request):
        self.socket.send(request)
        return self.answers.get(timeout=20)

    def handle(self, characteristic):
        """The handle of a characteristic's value."""
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
        """Writes without response."""
        self.socket.send(struct.pack("<BH", 0x52, handle) + value)

    def subscribe(self, handle):
        answer = self.ask(struct.pack("<BHH", 0x12, handle + 1, 1))
        assert answer == b"\x13", answer.hex()


def fragment(kind, stream, number=0, limit=32, payload=b""):
    return struct.pack(">BHHH", kind, stream, number, limit) + payload


def opening(stream):
    return fragment(OPEN, stream, payload=struct.pack(">BH", 1, 20))


class Stream:
    """The dialer's end, with fragments of 20 bytes."""

    def __init__(self, att, stream):
        self.att, self.stream = att, stream
        self.to_listener = att.handle(TO_LISTENER)
        att.subscribe(att.handle(TO_DIALER))
        self.next = self.first = self.limit = self.granted = 0
        self.waiting, self.buffer, self.end = {}, b"", None
        self.write(opening(stream))
        while self.limit == 0:
            self.take()

    def write(self, value):
        assert len(value) <= SMALLEST_FRAGMENT
        self.att.write(self.to_listener, value)

    def take(self):
        """Waits for the next fragment, and stores what it says."""
        value = self.att.notified.get(timeout=20)
        assert 7 <= len(value) <= SMALLEST_FRAGMENT, value.hex()
        kind, stream, number, limit = struct.unpack_from(">BHHH", value)
        assert stream == self.stream
        self.limit = max(self.limit, limit)  # fewer than 2^16 fragments are sent
        if kind == END:
            self.end = number
        elif kind == DATA:
            assert self.first <= number < self.first + WINDOW
            self.waiting[number] = value[7:]

    def send(self, data):
        room = SMALLEST_FRAGMENT - 7
        for start in range(0, len(data), room):
            while self.next == self.limit:
                self.take()
            self.write(fragment(
                DATA, self.stream, self.next, self.first + WINDOW, data[start : start + room]))
            self.next += 1

    def receive(self, count):
        """The next `count` bytes, or no bytes at the end."""
        while len(self.buffer) < count:
            if self.end == self.first:
                return b""
            while self.first not in self.waiting and self.end != self.first:
                self.take()
            self.buffer += self.waiting.pop(self.first, b"")
            self.first += self.end != self.first
            if self.first - self.granted >= WINDOW // 2:
                self.granted = self.first
                self.write(fragment(GRANT, self.stream, self.next, self.first + WINDOW))
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data


def main(adapter, listener, protocol, count):
    from noise.connection import Keypair, NoiseConnection

    stream = Stream(ATT(adapter, listener), 0x1234)
    noise = NoiseConnection.from_name(protocol.encode())
    noise.set_as_initiator()
    noise.set_keypair_from_private_bytes(Keypair.STATIC, bytes(range(1, 33)))
    noise.start_handshake()

    def send(message):
        stream.send(struct.pack(">H", len(message)) + bytes(message))

    def receive():
        (length,) = struct.unpack(">H", stream.receive(2))
        return stream.receive(length)

    send(noise.write_message())
    noise.read_message(receive())
    send(noise.write_message())
    print("handshake done", flush=True)
    sent = bytes(index % 251 for index in range(count))
    for start in range(0, count, 1000):
        send(noise.encrypt(sent[start : start + 1000]))
    send(noise.encrypt(b""))
    received = b""
    while piece := bytes(noise.decrypt(receive())):
        received += piece
    print("received", hashlib.sha256(received).hexdigest(), flush=True)
    stream.write(fragment(END, stream.stream, stream.next, stream.first + WINDOW))
    assert stream.receive(1) == b""
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
