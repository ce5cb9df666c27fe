"""One end of a negotiated channel, written from docs/wire-format.md on top of `noiseprotocol`.

    negotiated_peer.py dialer|acceptor PRIVATE-KEY SOCKET PROTOCOL [PROTOCOL ...]
    negotiated_peer.py public PRIVATE-KEY           prints the public key

The key is raw X25519, in base64. Standard input is sent to the peer in messages of various sizes, and
the peer's messages are written to standard output. Standard error gets `listening` when the program
can be dialed, `ready KEY PROTOCOL` with the peer's key when the peer's `ready` is verified, and
`complete` when the `end` of each side is acknowledged and the link is closed. A dialer that
offers IK needs the peer's key in the environment, as PEER_KEY. With PEER_FEATURES=1 the program
offers or accepts the feature *taken*; otherwise it sends no extension. Either way it checks blesec's
extensions.
"""

import base64
import hashlib
import os
import socket
import struct
import sys
import threading

from noise.connection import Keypair, NoiseConnection

MAGIC = b"BLS1"
ACCEPT, FALLBACK, SWITCH, REFUSED, BUSY = range(5)
DATA, MORE, END, PING, PONG, REKEY, READY, REJECT, ACK = range(9)
# The extension with features, and the bit of the feature *taken*: an acknowledgement means that the
# program, and not only the channel, has received the message.
FEATURES, TAKEN = 1, 1
# The lengths of the messages, in bytes: empty, tiny, in one record, and in several records. A record
# carries at most 65,518 bytes.
SIZES = [0, 1, 1000, 16384, 16385, 200000]


def say(text):
    print(text, file=sys.stderr, flush=True)


def framed(data):
    return struct.pack(">H", len(data)) + data


class Link:
    """A socket from which whole frames can be read."""

    def __init__(self, stream):
        self.stream = stream

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.stream.recv(count - len(data))
            if not piece:
                raise EOFError("the link ended")
            data += piece
        return data

    def read_framed(self):
        return self.read(struct.unpack(">H", self.read(2))[0])

    def read_negotiation(self):
        header = self.read(6)
        assert header[:4] == MAGIC, header
        (length,) = struct.unpack(">H", header[4:])
        assert 1 <= length <= 1024
        return header + self.read(length)


class Peer:
    def __init__(self, role, private, protocols):
        self.role = role
        self.private = private
        self.protocols = protocols
        # The bits of the features that this side offers, or accepts.
        self.supported = TAKEN if os.environ.get("PEER_FEATURES") == "1" else 0
        self.early = b""
        self.answer = b""
        self.sealing = threading.Lock()
        self.sent = self.acknowledged = self.received = 0
        self.end_sent = self.end_received = self.is_ping_answered = False

    # Negotiation

    def features(self):
        """The extension that this side sends, or nothing."""
        return bytes([FEATURES, 1, self.supported]) if self.supported else b""

    def read_features(self, extensions):
        """The peer's feature bits. `extensions` is the end of its hello or of its answer."""
        found = {}
        while extensions:
            kind, length = extensions[:2]
            assert kind not in found and len(extensions) >= 2 + length
            found[kind], extensions = extensions[2:2 + length], extensions[2 + length:]
        bits = found.get(FEATURES, b"")
        return bits[0] if bits else 0

    def check_features(self, extensions):
        """Checks the features in the peer's extensions."""
        bits = self.read_features(extensions)
        # When blesec dials, it always offers the feature. When it accepts, it answers with the
        # feature only if this program has offered it.
        assert bool(bits & TAKEN) == (bool(self.supported) or self.role == "acceptor"), bits

    def begin_handshake(self, name, prologue, is_initiator):
        noise = NoiseConnection.from_name(name.encode())
        noise.set_prologue(prologue)
        noise.set_keypair_from_private_bytes(Keypair.STATIC, self.private)
        if is_initiator:
            noise.set_as_initiator()
            if "_IK_" in name:
                key = base64.b64decode(os.environ["PEER_KEY"])
                noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, key)
        else:
            noise.set_as_responder()
        noise.start_handshake()
        return noise

    def prologue(self, kind):
        fields = [b"blesec/1 " + kind, self.hello]
        if kind != b"accept":
            fields += [self.early, self.answer]
        return b"".join(framed(field) for field in fields + [b""])

    def dial(self, link):
        names = b"".join(bytes([len(name)]) + name.encode() for name in self.protocols)
        self.hello = MAGIC + framed(bytes([len(self.protocols)]) + names + self.features())
        self.noise_state = self.begin_handshake(self.protocols[0], self.prologue(b"accept"), True)
        self.early = bytes(self.noise_state.write_message())
        link.stream.sendall(self.hello + framed(self.early))
        self.answer = link.read_negotiation()
        status, index = self.answer[6], self.answer[7]
        self.check_features(self.answer[8:])
        self.name = self.protocols[index]
        if status == SWITCH:
            self.noise_state = self.begin_handshake(self.name, self.prologue(b"switch"), True)
            link.stream.sendall(framed(bytes(self.noise_state.write_message())))
        elif status != ACCEPT:
            raise SystemExit(f"answered {status}")
        self.finish_handshake(link, writes=False)

    def accept(self, link):
        self.hello = link.read_negotiation()
        offers, rest = [], self.hello[7:]
        for _ in range(self.hello[6]):
            offers.append(rest[1:1 + rest[0]].decode())
            rest = rest[1 + rest[0]:]
        self.check_features(rest)
        self.early = link.read_framed()
        index = next(i for i, offer in enumerate(offers) if offer in self.protocols)
        self.name = offers[index]
        self.answer = MAGIC + framed(
            bytes([SWITCH if index else ACCEPT, index]) + self.features())
        if index == 0:
            self.noise_state = self.begin_handshake(self.name, self.prologue(b"accept"), False)
            self.noise_state.read_message(self.early)
        else:
            self.noise_state = self.begin_handshake(self.name, self.prologue(b"switch"), False)
        link.stream.sendall(self.answer)
        self.finish_handshake(link, writes=index == 0)

    def finish_handshake(self, link, writes):
        """Reads and writes messages in turn; `writes` tells whether this side writes the next one."""
        state = self.noise_state.noise_protocol.handshake_state
        while not self.noise_state.handshake_finished:
            if writes:
                link.stream.sendall(framed(bytes(self.noise_state.write_message())))
            else:
                self.noise_state.read_message(link.read_framed())
            writes = not writes
        self.key = state.rs.public_bytes

    # Records

    def ready(self, role):
        parts = [self.hello, self.early, self.answer, b""]
        return hashlib.sha256(bytes([role]) + b"".join(framed(part) for part in parts)).digest()

    def send(self, kind, payload):
        with self.sealing:
            record = bytes(self.noise_state.encrypt(bytes([kind]) + payload))
            self.link.stream.sendall(framed(record))

    def receive(self):
        while True:
            plaintext = bytes(self.noise_state.decrypt(self.link.read_framed()))
            # Types from 0x80 on are ignored, as the wire format requires.
            if plaintext[0] < 0x80:
                return plaintext[0], plaintext[1:]

    def exchange_ready(self, link):
        """Proves the negotiation to the peer, and checks the peer's proof."""
        self.link = link
        role = 0 if self.role == "dialer" else 1
        self.send(READY, self.ready(role))
        kind, payload = self.receive()
        if kind == REJECT:
            raise SystemExit(f"rejected with {payload[0]}")
        assert kind == READY and payload == self.ready(1 - role), "`ready` is not the expected hash"
        say(f"ready {base64.b64encode(self.key).decode()} {self.name}")

    def send_all(self):
        data = sys.stdin.buffer.read()
        index = 0
        while data:
            size = SIZES[index % len(SIZES)]
            index += 1
            message, data = data[:size], data[size:]
            while len(message) > 65518:
                self.send(MORE, message[:65518])
                message = message[65518:]
            # Padding, which blesec has to ignore.
            self.send(0x80, b"padding that means nothing")
            self.sent += 1
            self.send(DATA, message)
        self.send(PING, b"ping")
        # Counted before sending, since the acknowledgement may arrive before this thread continues.
        self.sent += 1
        self.end_sent = True
        self.send(END, b"\0")

    def receive_all(self):
        """Runs until each side has sent its `end`, and the peer has answered the ping and has
        acknowledged everything."""
        while not (
            self.end_received and self.end_sent and self.is_ping_answered
            and self.acknowledged == self.sent
        ):
            kind, payload = self.receive()
            if kind in (DATA, MORE):
                assert not self.end_received
                sys.stdout.buffer.write(payload)
                # Flushed first, since an acknowledgement can mean that the program has the message.
                sys.stdout.buffer.flush()
                self.received += kind == DATA
            elif kind == END:
                self.received += 1
                self.end_received = True
            elif kind == PING:
                self.send(PONG, payload)
            elif kind == PONG:
                assert payload == b"ping"
                self.is_ping_answered = True
            elif kind == ACK:
                self.acknowledged = struct.unpack(">Q", payload)[0]
            else:
                raise AssertionError(f"record of type {kind}")
            if kind == END or kind == DATA and self.received % 32 == 0:
                self.send(ACK, struct.pack(">Q", self.received))
        sys.stdout.buffer.flush()

    def run(self, link):
        if self.role == "dialer":
            self.dial(link)
        else:
            self.accept(link)
        self.exchange_ready(link)
        sender = threading.Thread(target=self.send_all)
        sender.start()
        self.receive_all()
        sender.join()
        if self.role == "acceptor":
            # The dialer closes once it has this side's acknowledgement.
            assert link.stream.recv(1) == b"", "bytes arrived after the end"
        link.stream.close()
        say("complete")


def connect(role, path):
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(60)
    if role == "dialer":
        stream.connect(path)
        return stream
    stream.bind(path)
    stream.listen(1)
    say("listening")
    return stream.accept()[0]


def main():
    role, private = sys.argv[1], base64.b64decode(sys.argv[2])
    if role == "public":
        noise = NoiseConnection.from_name(b"Noise_XX_25519_ChaChaPoly_SHA256")
        noise.set_keypair_from_private_bytes(Keypair.STATIC, private)
        print(base64.b64encode(noise.noise_protocol.keypairs["s"].public_bytes).decode())
        return
    Peer(role, private, sys.argv[4:]).run(Link(connect(role, sys.argv[3])))


if __name__ == "__main__":
    main()
