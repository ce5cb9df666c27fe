"""A device without blesec and without bluetoothd: the stream over GATT on a kernel socket, written from
docs/wire-format.md.

    gatt_peer.py ADAPTER LISTENER PROTOCOL COUNT

opens the stream at the listener, and runs the Python package noiseprotocol over the stream as the
initiator of a direct channel. It sends COUNT bytes, and prints the SHA-256 digest of the bytes that the
listener sends. ADAPTER and LISTENER are Bluetooth addresses.
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


LE_PUBLIC = 1


def call(function, sock, address, psm=0, cid=0):
    """Calls bind or connect with an address, and a PSM or a fixed channel."""
    raw = bytes(int(byte, 16) for byte in reversed(address.split(":")))
    where = struct.pack("<HH6sHBx", socket.AF_BLUETOOTH, psm, raw, cid, LE_PUBLIC)
    if function(sock.fileno(), where, len(where)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_channel(adapter, peer, psm):
    """A socket with an open L2CAP channel."""
    channel = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_SEQPACKET, socket.BTPROTO_L2CAP)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 20, 0))
    call(LIBC.bind, channel, adapter)
    call(LIBC.connect, channel, peer, psm)
    return channel


class ATT:
    """An ATT client over a kernel socket, by the Core Specification, Volume 3, Part F."""

    ATT_CID = 4

    def __init__(self, adapter, peer):
        # btvirt reports an advertiser once, when the kernel begins to look for it. If the kernel has missed
        # this report, only another attempt helps.
        for attempts_left in range(7, -1, -1):
            self.socket = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_SEQPACKET, socket.BTPROTO_L2CAP)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 5, 0))
            call(LIBC.bind, self.socket, adapter, cid=self.ATT_CID)
            try:
                call(LIBC.connect, self.socket, peer, cid=self.ATT_CID)
                break
            except BlockingIOError:
                self.socket.close()
                if not attempts_left:
                    raise
        self.answers = queue.SimpleQueue()
        self.notified = queue.SimpleQueue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while pdu := self.socket.recv(1024):
                if pdu[0] == 0x1B:  # a notification: opcode, handle, value
                    self.notified.put(pdu[3:])
                elif pdu[0] == 0x02:  # a request for a larger MTU, which is declined
                    self.socket.send(struct.pack("<BH", 0x03, SMALLEST_MTU))
                elif pdu[0] % 2 == 0 and not pdu[0] & 0x40:  # any other request, which is not supported
                    self.socket.send(struct.pack("<BBHB", 0x01, pdu[0], 0, 0x06))
                else:
                    self.answers.put(pdu)
        except OSError:
            pass

    def ask(self, request):
        self.socket.send(request)
        return self.answers.get(timeout=20)

    def handle(self, characteristic):
        """The handle of a characteristic's value."""
        wanted, first = uuid.UUID(characteristic).bytes[::-1], 1
        while True:
            # Read by type, of the type "characteristic declaration".
            answer = self.ask(struct.pack("<BHHH", 0x08, first, 0xFFFF, 0x2803))
            if answer[0] != 0x09:
                raise AssertionError(f"the listener has no characteristic {characteristic}")
            for start in range(2, len(answer), answer[1]):
                handle, _, value = struct.unpack_from("<HBH", answer, start)
                if answer[start + 5 : start + answer[1]] == wanted:
                    return value
                first = handle + 1

    def read_value(self, handle):
        answer = self.ask(struct.pack("<BH", 0x0A, handle))
        assert answer[0] == 0x0B, answer.hex()
        return answer[1:]

    def write(self, handle, value):
        """Writes a value; the server sends no response."""
        self.socket.send(struct.pack("<BH", 0x52, handle) + value)

    def subscribe(self, handle):
        """Asks for notifications of a value. In this server, the descriptor that enables them follows
        the value."""
        answer = self.ask(struct.pack("<BHH", 0x12, handle + 1, 1))
        assert answer == b"\x13", answer.hex()


def fragment(kind, stream, number=0, limit=WINDOW, payload=b""):
    return struct.pack(">BHHH", kind, stream, number, limit) + payload


def opening(stream):
    """The open fragment: version 1, and the size of the largest fragment that its sender takes."""
    return fragment(OPEN, stream, payload=struct.pack(">BH", 1, SMALLEST_FRAGMENT))


class Stream:
    """The dialer's end of a stream, with fragments of at most 20 bytes."""

    def __init__(self, att, stream_number):
        self.att, self.stream_number = att, stream_number
        self.to_listener = att.handle(TO_LISTENER)
        att.subscribe(att.handle(TO_DIALER))
        self.next_sent = 0  # the number of the next data fragment to send
        self.limit = 0  # the first number that the listener does not take yet
        self.next_read = 0  # the number of the next data fragment to read
        self.granted = 0  # what `next_read` was at the last grant
        self.waiting = {}  # payloads that have arrived and are not read yet, by number
        self.end = None  # the number after the listener's last data fragment, once known
        self.buffer = b""
        self.write(opening(stream_number))
        while self.limit == 0:
            self.take_fragment()

    def write(self, value):
        assert len(value) <= SMALLEST_FRAGMENT
        self.att.write(self.to_listener, value)

    def take_fragment(self):
        """Waits for the next fragment, and stores its limit, its payload or the end."""
        value = self.att.notified.get(timeout=20)
        assert 7 <= len(value) <= SMALLEST_FRAGMENT, value.hex()
        kind, stream, number, limit = struct.unpack_from(">BHHH", value)
        assert stream == self.stream_number
        self.limit = max(self.limit, limit)  # limits do not wrap: fewer than 2^16 fragments are sent
        if kind == END:
            self.end = number
        elif kind == DATA:
            assert self.next_read <= number < self.next_read + WINDOW
            self.waiting[number] = value[7:]

    def send(self, data):
        room = SMALLEST_FRAGMENT - 7
        for start in range(0, len(data), room):
            while self.next_sent == self.limit:
                self.take_fragment()
            self.write(fragment(
                DATA, self.stream_number, self.next_sent, self.next_read + WINDOW, data[start : start + room]))
            self.next_sent += 1

    def receive(self, count):
        """The next `count` bytes, or no bytes if the stream ends before."""
        while len(self.buffer) < count:
            if self.end == self.next_read:
                return b""
            while self.next_read not in self.waiting and self.end != self.next_read:
                self.take_fragment()
            self.buffer += self.waiting.pop(self.next_read, b"")
            self.next_read += self.end != self.next_read
            if self.next_read - self.granted >= WINDOW // 2:
                self.granted = self.next_read
                self.write(fragment(GRANT, self.stream_number, self.next_sent, self.next_read + WINDOW))
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
    stream.write(fragment(END, stream.stream_number, stream.next_sent, stream.next_read + WINDOW))
    assert stream.receive(1) == b""
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
