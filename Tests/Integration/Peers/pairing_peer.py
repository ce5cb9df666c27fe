"""A peer that pairs, written from docs/wire-format.md on top of `noiseprotocol` and `cpace.py`.

    pairing_peer.py

Each line of standard input is one request, and standard error gets one line or more for each, which
begin with the request's number, counted from 1. A request is a word and values:

    key device=NAME                      `N key SHA256:...`, the device's fingerprint
    invite device=NAME                   `N invitation URI`
    dial device=NAME socket=PATH way=invitation|code|comparison value=URI|DIGITS
    accept (as dial)                     `N listening`, and then as dial

`dial` and `accept` end with one of these lines. The numbers say how many keys the device knows then,
and how many it keeps as pending.

    N outcome paired known=1 pending=0          both have stored each other, and exchanged a message
    N outcome refused CODE known=0 pending=1    the peer has sent `reject`
    N outcome refused answer 3 known=0 pending=0
                                                the peer's answer to the hello is *refused*
    N outcome refuses known=0 pending=0         this side has sent `reject`
    N outcome closed known=0 pending=0          the peer has closed the link
    N outcome unreadable known=0 pending=0      a message of the handshake, or a record, cannot be decrypted
    N outcome cut known=0 pending=1             this side has closed the link: the request has `cut`, or
                                                the acceptor is not the inviter

A comparison writes `N digits DIGITS` before that line. Further values of dial and accept:

    answer=no                            the person on this side says that the digits differ
    cut=begin|share|confirm|...          closes the link instead of sending the record with this step
    cut=unstored                         closes the link instead of storing the peer
    cut=reject                           closes the link instead of refusing the peer
    claim=NUMBER                         claims this standing (wire-format.md), and behaves accordingly
    STEP=PART+PART...                    sends these records instead of the one with this step

A PART is the payload of a record of type `pair` in hexadecimal, TYPE:HEX for another type, or a word:

    own                                  the record that belongs there
    flipped                              that record with another last byte
    short                                that record without its last byte
    long                                 that record with one more byte
    echo                                 the last record of the peer
    fillNUMBER                           NUMBER bytes of padding

A device's key follows from its name, and what it has stored lasts as long as the program.
"""

import base64
import hashlib
import hmac
import os
import secrets
import socket
import struct
import sys
import time

from noise.connection import Keypair, NoiseConnection
from noise.exceptions import NoiseInvalidMessage

from cpace import Run
from negotiated_peer import (
    ACCEPT, ACK, DATA, END, FEATURES, MAGIC, PING, PONG, READY, REFUSED, REJECT, Link, framed)

PAIR, PADDING = 0x17, 0x80
# The bit of the feature *pairing*.
PAIRING = 4
BEGIN, SHARE, CONFIRM, DONE, COMMIT, NONCE, SETTLE = range(7)
STEPS = ["begin", "share", "confirm", "done", "commit", "nonce", "settle"]
WAYS = {"invitation": 1, "code": 2, "comparison": 3}
# The standings.
NOTHING, PENDING, VERIFIED, KNOWN = range(4)
# The input CI of CPace: the channel identifier.
CI = b"blesec/1 pairing, draft-irtf-cfrg-cpace-21"


class RefusedByPeer(Exception):
    """The peer has sent `reject`, or the answer *refused*."""


class RefusesPeer(Exception):
    """This side has sent `reject`."""


class Cut(Exception):
    """This side closes the link, and sends nothing more."""


def label(word):
    return b"blesec/1 pairing " + word.encode()


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def fingerprint(public):
    return sha256(bytes.fromhex("302a300506032b656e032100"), public)


def printed(key):
    return "SHA256:" + base64.b64encode(key).decode().rstrip("=")


def to_base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_base64url(text):
    assert len(text) == 43
    return base64.urlsafe_b64decode(text + "=")


class Device:
    """Keys, and what was stored: the keys that are known, and for each pending key the transcript's
    hash and the standing."""

    def __init__(self, name):
        self.private = sha256(b"device " + name.encode())
        noise = NoiseConnection.from_name(b"Noise_XX_25519_ChaChaPoly_SHA256")
        noise.set_keypair_from_private_bytes(Keypair.STATIC, self.private)
        self.key = fingerprint(noise.noise_protocol.keypairs["s"].public_bytes)
        self.known = set()
        self.pending = {}
        self.secret = None

    def standing(self, key):
        if key in self.known:
            return KNOWN
        return self.pending[key][1] if key in self.pending else NOTHING

    def invite(self):
        self.secret = secrets.token_bytes(32)
        return (f"blesec:pair?v=1&key={to_base64url(self.key)}&secret={to_base64url(self.secret)}"
                f"&expires={int(time.time()) + 120}")

    def counts(self):
        return f"known={len(self.known)} pending={len(self.pending)}"


def read_invitation(uri):
    """The inviter's key and the secret."""
    prefix, _, query = uri.partition("?")
    values = dict(part.split("=", 1) for part in query.split("&"))
    assert prefix == "blesec:pair" and values["v"] == "1" and values["expires"].isdigit()
    assert set(values) - {"service"} == {"v", "key", "secret", "expires"}
    return from_base64url(values["key"]), from_base64url(values["secret"])


class Channel:
    """A channel in negotiated mode. Both sides require the feature *pairing*.

    Role 0 is the dialer, role 1 the acceptor."""

    def __init__(self, role, device, link, way, value):
        self.role, self.device, self.link = role, device, link
        # The only key that is accepted, if there is one, and the pre-shared key.
        self.expected, self.secret = None, None
        if way == "invitation" and role == 0:
            self.expected, self.secret = read_invitation(value)
        elif way == "invitation":
            self.secret = device.secret
        self.name = "Noise_XXpsk3_" if self.secret else "Noise_XX_"
        self.name += "25519_ChaChaPoly_SHA256"

    def open(self):
        extension = bytes([FEATURES, 1, PAIRING])
        if self.role == 0:
            offer = bytes([1, len(self.name)]) + self.name.encode()
            self.hello = MAGIC + framed(offer + extension)
            self.begin_handshake()
            self.early = bytes(self.noise.write_message())
            self.link.stream.sendall(self.hello + framed(self.early))
            self.answer = self.link.read_negotiation()
            status, index = self.answer[6:8]
            if status == REFUSED:
                raise RefusedByPeer(f"answer {status}")
            assert (status, index) == (ACCEPT, 0), self.answer
            self.check_features(self.answer[8:])
        else:
            self.hello = self.link.read_negotiation()
            offers, rest = [], self.hello[7:]
            for _ in range(self.hello[6]):
                offers.append(rest[1:1 + rest[0]].decode())
                rest = rest[1 + rest[0]:]
            assert offers[0] == self.name, offers
            self.check_features(rest)
            self.early = self.link.read_framed()
            self.answer = MAGIC + framed(bytes([ACCEPT, 0]) + extension)
            self.begin_handshake()
            self.noise.read_message(self.early)
            self.link.stream.sendall(self.answer)
        self.shake_hands()
        self.send(READY, self.ready(self.role))
        kind, payload = self.receive()
        assert kind == READY and payload == self.ready(1 - self.role)

    def check_features(self, extensions):
        kind, length = extensions[:2]
        assert kind == FEATURES and len(extensions) == 2 + length, extensions
        assert extensions[2] & PAIRING, "the peer does not pair"

    def begin_handshake(self):
        noise = self.noise = NoiseConnection.from_name(self.name.encode())
        noise.set_prologue(b"".join(map(framed, (b"blesec/1 accept", self.hello, b""))))
        noise.set_keypair_from_private_bytes(Keypair.STATIC, self.device.private)
        if self.secret:
            noise.set_psks(self.secret)
        (noise.set_as_responder if self.role else noise.set_as_initiator)()
        noise.start_handshake()

    def shake_hands(self):
        """The second handshake message and the third."""
        state = self.noise.noise_protocol.handshake_state
        if self.role == 0:
            self.noise.read_message(self.link.read_framed())
            if self.expected not in (None, fingerprint(state.rs.public_bytes)):
                # A dialer that refuses before it has sent its own key only closes the link.
                raise Cut
            self.link.stream.sendall(framed(bytes(self.noise.write_message())))
        else:
            self.link.stream.sendall(framed(bytes(self.noise.write_message())))
            self.noise.read_message(self.link.read_framed())
        assert self.noise.handshake_finished
        self.peer = fingerprint(state.rs.public_bytes)
        self.hash = self.noise.get_handshake_hash()

    def ready(self, role):
        return sha256(bytes([role]), *map(framed, (self.hello, self.early, self.answer, b"")))

    def send(self, kind, payload):
        self.link.stream.sendall(framed(bytes(self.noise.encrypt(bytes([kind]) + payload))))

    def receive(self):
        while True:
            plaintext = bytes(self.noise.decrypt(self.link.read_framed()))
            if plaintext[0] == REJECT:
                assert len(plaintext) == 33 and plaintext[2:] == bytes(31)
                raise RefusedByPeer(str(plaintext[1]))
            if plaintext[0] < 0x80:
                return plaintext[0], plaintext[1:]

    def refuse(self):
        self.send(REJECT, b"\1" + bytes(31))
        raise RefusesPeer

    def talk(self):
        """Exchanges a message with the peer, and closes."""
        self.send(DATA, b"from the peer")
        sent, acknowledged, received = 1, 0, 0
        has_ended = False
        while not has_ended or acknowledged < sent:
            kind, payload = self.receive()
            if kind == DATA:
                assert payload == b"from the library" and received == 0
                received = 1
                self.send(END, b"\0")
                sent = 2
            elif kind == END:
                assert received == 1 and payload == b"\0"
                has_ended = True
                self.send(ACK, struct.pack(">Q", 2))
            elif kind == ACK:
                (acknowledged,) = struct.unpack(">Q", payload)
                assert acknowledged <= sent
            elif kind == PING:
                self.send(PONG, payload)
            else:
                raise AssertionError(f"record of type {kind}")
        if self.role == 1:
            assert self.link.stream.recv(1) == b"", "bytes arrived after the end"


class Pairing:
    """One side of a pairing, on an open channel."""

    def __init__(self, channel, values, report):
        self.channel, self.device, self.report = channel, channel.device, report
        self.role, self.peer, self.h = channel.role, channel.peer, channel.hash
        self.values = values
        self.way = values["way"]
        self.last_received = b""
        keys = (self.device.key, self.peer)
        # The dialer's key and the acceptor's.
        self.keys = keys if self.role == 0 else keys[::-1]

    # Records

    def put(self, step, value=b""):
        name, own = STEPS[step], bytes([step]) + value
        if self.values.get("cut") == name:
            raise Cut
        for part in self.values.get(name, "own").split("+"):
            kind, payload = PAIR, own
            if part == "flipped":
                payload = own[:-1] + bytes([own[-1] ^ 1])
            elif part == "short":
                payload = own[:-1]
            elif part == "long":
                payload = own + b"\0"
            elif part == "echo":
                payload = self.last_received
            elif part.startswith("fill"):
                kind, payload = PADDING, bytes(int(part[4:]))
            elif part != "own":
                number, _, text = part.rpartition(":")
                kind, payload = int(number, 16) if number else PAIR, bytes.fromhex(text)
            self.channel.send(kind, payload)

    def get(self, step, length):
        kind, payload = self.channel.receive()
        assert kind == PAIR and payload[0] == step and len(payload) == 1 + length, (kind, payload)
        self.last_received = payload
        return payload[1:]

    def refuse(self):
        if self.values.get("cut") == "reject":
            raise Cut
        self.channel.refuse()

    # What is stored

    def keep_pending(self, standing):
        self.device.pending[self.peer] = (self.transcript, standing)

    def store_known(self):
        if self.values.get("cut") == "unstored":
            raise Cut
        self.device.known.add(self.peer)
        self.device.pending.pop(self.peer, None)

    # The courses

    def run(self):
        standing = int(self.values.get("claim", self.device.standing(self.peer)))
        begin = bytes([WAYS[self.way], standing])
        if self.role == 0:
            self.put(BEGIN, begin)
        way, peers_standing = self.get(BEGIN, 2)
        if self.role == 1:
            self.put(BEGIN, begin)
        standings = (standing, peers_standing)
        if all(each in (PENDING, VERIFIED) for each in standings):
            self.settle()
        elif standings == (KNOWN, VERIFIED) or standings == (KNOWN, KNOWN) and self.role == 0:
            self.put(DONE)
        elif standings in ((VERIFIED, KNOWN), (KNOWN, KNOWN)):
            self.get(DONE, 0)
            self.store_known()
        elif way != WAYS[self.way]:
            self.refuse()
        else:
            {1: self.by_invitation, 2: self.by_code, 3: self.by_comparison}[way]()

    def dialer_confirms(self, standing, confirm=b"", expected=b""):
        """The dialer's part, from its `confirm` on."""
        self.keep_pending(standing)
        try:
            self.put(CONFIRM, confirm)
            if not hmac.compare_digest(self.get(CONFIRM, len(expected)), expected):
                self.refuse()
        except (RefusedByPeer, RefusesPeer):
            del self.device.pending[self.peer]
            raise
        self.store_known()
        self.put(DONE)

    def acceptor_confirms(self, confirm=b"", expected=b""):
        """The acceptor's part, from the dialer's `confirm` on."""
        if not hmac.compare_digest(self.get(CONFIRM, len(expected)), expected):
            self.refuse()
        self.keep_pending(VERIFIED)
        self.put(CONFIRM, confirm)
        self.get(DONE, 0)
        self.store_known()

    def by_invitation(self):
        self.transcript = sha256(label("transcript"), self.h)
        self.dialer_confirms(VERIFIED) if self.role == 0 else self.acceptor_confirms()

    def by_code(self):
        ada, adb = label("dialer") + self.keys[0], label("acceptor") + self.keys[1]
        run = Run(self.role == 0, self.values["value"].encode(), CI, self.h, ada, adb)
        if self.role == 0:
            self.put(SHARE, run.share)
        is_valid = run.finish(self.get(SHARE, 32))
        assert is_valid, "the peer's share is invalid"
        self.transcript = sha256(label("transcript"), self.h, run.ta, run.tb)
        if self.role == 0:
            self.dialer_confirms(PENDING, run.ta, run.tb)
        else:
            self.put(SHARE, run.share)
            self.acceptor_confirms(run.tb, run.ta)

    def by_comparison(self):
        self.transcript = sha256(label("transcript"), self.h)
        nonce = secrets.token_bytes(32)
        if self.role == 0:
            self.put(COMMIT, sha256(label("commitment"), *self.keys, self.h, nonce))
            nonces = nonce, self.get(NONCE, 32)
            self.put(NONCE, nonce)
        else:
            commitment = self.get(COMMIT, 32)
            self.put(NONCE, nonce)
            nonces = self.get(NONCE, 32), nonce
            assert commitment == sha256(label("commitment"), *self.keys, self.h, nonces[0])
        digest = sha256(label("digits"), *self.keys, self.h, *nonces)
        self.report(f"digits {int.from_bytes(digest[:8], 'big') % 1_000_000:06}")
        if self.values.get("answer") == "no":
            self.refuse()
        self.dialer_confirms(VERIFIED) if self.role == 0 else self.acceptor_confirms()

    def settle(self):
        # If the request has `claim`, this side may have no transcript.
        transcript, _ = self.device.pending.get(self.peer, (bytes(32), PENDING))

        def proof(role):
            return hmac.digest(transcript, label("settle") + bytes([role]) + self.h, "sha256")

        if self.role == 0:
            self.put(SETTLE, proof(0))
        if not hmac.compare_digest(self.get(SETTLE, 32), proof(1 - self.role)):
            self.device.pending.pop(self.peer, None)
            self.refuse()
        if self.role == 0:
            self.store_known()
            self.put(DONE)
        else:
            self.device.pending[self.peer] = (transcript, VERIFIED)
            self.put(SETTLE, proof(1))
            self.get(DONE, 0)
            self.store_known()


def connect(role, path, report):
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(20)
    if role == 0:
        stream.connect(path)
        return stream
    if os.path.exists(path):
        os.unlink(path)
    stream.bind(path)
    stream.listen(1)
    report("listening")
    accepted = stream.accept()[0]
    accepted.settimeout(20)
    return accepted


def meet(role, device, values, report):
    """Runs one link, and returns the outcome in words."""
    with connect(role, values["socket"], report) as stream:
        try:
            channel = Channel(role, device, Link(stream), values["way"], values.get("value"))
            channel.open()
            Pairing(channel, values, report).run()
            channel.talk()
            return "paired"
        except RefusedByPeer as refused:
            return f"refused {refused}"
        except RefusesPeer:
            # The peer closes the link when it has read `reject`.
            try:
                while stream.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            return "refuses"
        except Cut:
            return "cut"
        except NoiseInvalidMessage:
            return "unreadable"
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return "closed"


def main():
    devices = {}
    for number, line in enumerate(sys.stdin, 1):
        request, *words = line.split()
        values = dict(word.split("=", 1) for word in words)
        name = values["device"]
        device = devices.setdefault(name, Device(name))

        def report(text):
            print(number, text, file=sys.stderr, flush=True)

        if request == "key":
            report("key " + printed(device.key))
        elif request == "invite":
            report("invitation " + device.invite())
        else:
            outcome = meet(["dial", "accept"].index(request), device, values, report)
            report(f"outcome {outcome} {device.counts()}")


if __name__ == "__main__":
    main()
