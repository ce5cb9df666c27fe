"""One end of a delivery that outlives its links, written from docs/delivery.md and docs/wire-format.md.

    delivery_peer.py dialer|acceptor PRIVATE-KEY SOCKET INPUT OUTPUT [--cuts N] [--seed N] [--late]
                     [--restarts] [--features N] [--streams N] [--peers-streams N] [--most N]
                     [--window N] [--first-limit N] [--open N]

The key is raw X25519, in base64. The file INPUT goes to the peer in messages of various sizes, and the
peer's messages are written to the file OUTPUT. The program closes N links abruptly, after random numbers
of bytes, and resumes on the next link: a dialer dials again, an acceptor accepts again. The state is kept
in memory. What the peer sends is checked against the pages, and the program ends with an error if a rule
is broken, or if the peer closes a link.

With --late the last cut comes after this side is complete, while the two sides end the channel. With
--restarts the peer may close links too, and its process may be replaced, which leaves the fate of messages
unknown.
--features N offers or accepts the feature bits N, 3 by default; the bit of weight 2 is *delivery*.

Beside the messages the program opens --streams streams with random labels and classes, of at most --most
bytes, and answers the streams that the peer opens, of which there are --peers-streams; `stream_programs.py`
says what happens in a stream. The peer may send --window bytes ahead of the program, and may open
--first-limit streams at first and then --open at a time.

Standard error gets `listening` when the program can be dialed, `ready KEY PROTOCOL` on each link, a line
for each cut, and `complete` with what was counted. The exit status is 0 only if the end of each side is
confirmed, the peer has said that it is complete or has had 30 seconds to come back, and every cut was
made.
"""

import argparse
import base64
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from delivery_fields import NOBODY, Fields, Violation, check, write_number, write_numbers
from delivery_streams import CLASSES, KINDS, MESSAGES, Streams
from negotiated_peer import (
    ACK, DATA, END, FEATURES, MORE, PING, PONG, READY, REJECT, REKEY, Link, Peer, connect, say)
from stream_programs import make_label, programs

PROTOCOL = "Noise_XX_25519_ChaChaPoly_SHA256"
RESUME, CHUNK, CONFIRM, EPOCH, CREDIT, FINISH = range(0x09, 0x0F)
# The bit of the feature *delivery*.
DELIVERY = 2
# What a message costs in addition to its bytes, and what an end costs.
OVERHEAD = 64
LONGEST_MESSAGE = 16 << 20
# The most bytes that a record carries after its type.
PAYLOAD = 65_518
# The lengths in bytes of messages, and of the chunks in which they are sent. A chunk has three numbers of at
# most 8 bytes before its bytes.
SIZES = [1, 60_000, 0, 1_000, 200_000, 16_384]
CHUNKS = [100, 5_000, 16_384, PAYLOAD - 24]
# How far ahead of the program the peer may send, and how much is sealed ahead of the socket, in bytes.
WINDOWS = [1, 5_000, 100_000, 1_000_000]
QUEUE = 32_768
# How long a complete side stays reachable, and for how long a peer may be silent, in seconds.
STAY = 30
SILENCE = 60
# For how long the program may run, in seconds.
MOST_SECONDS = 60


class Cut(Exception):
    """This program has cut the link."""


class CutStream:
    """A socket that is closed abruptly once it has carried `allowance` bytes, in both directions
    together. What is sent waits in a queue; during a handshake it goes out before anything is read."""

    def __init__(self, stream, allowance):
        self.stream = stream
        self.allowance = allowance
        self.queue = bytearray()
        self.is_handshake = True
        self.carried = 0
        self.heard_at = time.monotonic()

    def sendall(self, data):
        self.queue += data

    def permitted_count(self, count):
        """How many of `count` bytes the link may still carry. Cuts the link if it may carry none."""
        if self.allowance is None:
            return count
        if self.carried >= self.allowance:
            self.stream.close()
            raise Cut(f"cut after {self.carried} bytes")
        return min(count, self.allowance - self.carried)

    def push(self):
        """Sends as much of the queue as the socket takes."""
        if self.queue:
            count = self.stream.send(self.queue[:self.permitted_count(len(self.queue))])
            del self.queue[:count]
            self.carried += count

    def recv(self, count):
        while self.queue and self.is_handshake:
            self.push()
        data = self.stream.recv(self.permitted_count(count))
        self.carried += len(data)
        return data

    def wait(self, seconds):
        """Waits at most `seconds` until bytes can be read or the socket takes bytes of the queue. Sends what
        the socket takes, and returns whether bytes can be read."""
        self.permitted_count(1)
        readable, writable, _ = select.select(
            [self.stream], [self.stream] if self.queue else [], [], seconds)
        if writable:
            self.push()
        if readable:
            self.heard_at = time.monotonic()
        check(time.monotonic() - self.heard_at < SILENCE, "the peer is silent")
        return bool(readable)

    def close(self):
        self.stream.close()


class Sender:
    """The direction of this side's messages."""

    def __init__(self, messages):
        self.past_epochs = set()
        self.unknown = 0
        self.begin(messages)

    def begin(self, messages):
        """Begins an epoch, in which the messages have the numbers 1, 2, 3 and so on."""
        self.epoch = os.urandom(16)
        self.messages = dict(enumerate(messages, 1))
        self.end = len(messages) + 1
        self.confirmed = 0
        # The last message whose last byte may have left, and the bytes that may have left of the next one.
        self.last_sent = self.part_sent = 0

    @property
    def is_end_confirmed(self):
        return self.confirmed == self.end

    def confirm(self, number):
        for confirmed in range(self.confirmed + 1, number + 1):
            self.messages.pop(confirmed, None)
        self.confirmed = number

    def note_sent(self, number, offset):
        """Notes that the message has been sent up to this offset, or that the end has been sent."""
        if number == self.end or offset == len(self.messages[number]):
            if number > self.last_sent:
                self.last_sent, self.part_sent = number, 0
        elif number == self.last_sent + 1:
            self.part_sent = max(self.part_sent, offset)

    def check_positions(self, held, offset):
        """Checks positions that the peer shows in this epoch."""
        check(held <= self.last_sent, "*held* exceeds what may have left")
        if offset:
            check(held + 1 < self.end, "*offset* is not 0, although only the end remains")
            check(offset < len(self.messages[held + 1]), "*offset* is not less than the length")
            check(
                held < self.last_sent or offset <= self.part_sent, "*offset* exceeds what may have left")

    def lose_peer(self):
        """Decides the fate of each message, since the peer's state is lost."""
        pending = sorted(self.messages)
        self.unknown += sum(number <= self.last_sent for number in pending)
        self.past_epochs.add(self.epoch)
        self.begin([self.messages[number] for number in pending if number > self.last_sent])


class Receiver:
    """The direction of the peer's messages."""

    def __init__(self):
        self.past_epochs = set()
        # The peer's token and epoch that were taken over; and the token and the epoch that the peer named last,
        # in `resume` or `epoch`, whether they were taken over or not.
        self.token = self.epoch = NOBODY
        self.last_token = self.last_epoch = None
        self.confirmed = self.held = 0
        self.part = bytearray()
        self.part_length = None
        self.end = None
        # What the program has not taken: for each message its epoch, its number, its bytes, and a total cost:
        # that of this message and of the messages before it on the link in use.
        self.waiting = deque()

    def begin(self, epoch, first):
        """Takes over an epoch."""
        if self.epoch != NOBODY:
            self.past_epochs.add(self.epoch)
        self.epoch = epoch
        self.confirmed = self.held = first - 1
        self.part, self.part_length, self.end = bytearray(), None, None

    @property
    def is_end_confirmed(self):
        return self.end is not None and self.confirmed == self.end

    def drop(self, drops_messages):
        """Drops what is merely held, as a receiver may between two links."""
        self.part = bytearray()
        if drops_messages and not self.is_end_confirmed:
            self.waiting = deque(entry for entry in self.waiting if entry[0] != self.epoch)
            self.held, self.part_length, self.end = self.confirmed, None, None


class DeliveryPeer(Peer):
    """One endpoint, on one link after another."""

    def __init__(self, role, private, messages, output, features, generator, has_restarts, streams, labels):
        super().__init__(role, private, [PROTOCOL])
        self.supported = self.features_on_link = features
        self.sender, self.receiver = Sender(messages), Receiver()
        self.token = streams.token
        self.streams = streams
        # The labels of the streams that are still to be opened, and the programs that run in streams.
        self.labels = labels
        self.programs = []
        # The class of the messages.
        self.priority = generator.randrange(CLASSES)
        self.output = output
        self.generator = generator
        self.has_restarts = has_restarts
        self.public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        self.limit_time(MOST_SECONDS)
        # Whether the peer is known to have taken over this side's token, and whether this side may exit,
        # because the peer has said that it is complete.
        self.is_known = self.may_exit = False
        # Whether the peer's `ready` was verified on the link in use.
        self.is_ready = False
        # Two counts of the links on which a message has continued from an earlier link: a message of this
        # side, and a message of the peer.
        self.continued = [0, 0]

    def limit_time(self, seconds):
        """Sets for how long the program may run."""
        self.most_seconds, self.deadline = seconds, time.monotonic() + seconds

    # Negotiation

    def features(self):
        return bytes([FEATURES, 1, self.features_on_link])

    def check_features(self, extensions):
        bits = self.read_features(extensions)
        check(bits & DELIVERY, "the peer does not require *delivery*")
        if self.role == "acceptor":
            self.features_on_link = self.supported & bits
        else:
            check(bits & ~self.supported == 0, "a feature was not offered")

    # Records

    @property
    def is_complete(self):
        return self.sender.is_end_confirmed and self.receiver.is_end_confirmed and self.streams.is_over

    def send_resume(self):
        sender, receiver = self.sender, self.receiver
        self.window = self.generator.choice(WINDOWS)
        # Sometimes the first credit is 0, and the real one comes a little later.
        self.granted = self.window if self.generator.random() < 0.8 else 0
        self.grants_at = time.monotonic() + 0.05
        # What the peer's messages that were begun on this link cost together, and the same for those that the
        # program has taken.
        self.peers_cost = self.peers_taken_cost = 0
        numbers = [
            sender.confirmed + 1, receiver.confirmed, receiver.held, len(receiver.part), self.granted]
        self.send(RESUME, self.token + receiver.token + sender.epoch + receiver.epoch
                  + write_numbers(*numbers) + self.streams.resume_fields())
        # The position *confirmed* that the peer was told last.
        self.told_confirmed = receiver.confirmed
        # The message of the peer that was begun last on this link.
        self.message_on_link = None

    def read_resume(self, payload):
        """Takes the steps of "A received `resume`"; step 1 is for an instance that continues a store."""
        sender, receiver = self.sender, self.receiver
        fields = Fields(payload)
        token, peer_token, epoch, peer_epoch = [fields.identifier() for _ in range(4)]
        first, confirmed, held, offset, self.credit = fields.numbers(5)
        streams = self.streams.read_fields(fields)
        fields.end()
        check(NOBODY not in (token, epoch), "a token or an epoch is zeros")
        check(token != self.token and epoch != sender.epoch, "a token or an epoch is this side's")
        check(first >= 1, "*first* is less than 1")
        if peer_epoch == NOBODY:
            check(confirmed == held == offset == 0, "positions in no epoch")
        # Step 2. A process that keeps its state in memory is never rolled back.
        check(epoch not in receiver.past_epochs, "the peer has left this epoch before")
        # Step 3.
        continues = token == receiver.last_token or epoch == receiver.last_epoch
        check(continues or self.has_restarts or receiver.last_token is None, "the peer's state is lost")
        if not self.has_restarts:
            # Neither side's state was ever lost.
            check(peer_token in (self.token, NOBODY), "the peer shows a token that never was")
            check(peer_epoch in (sender.epoch, NOBODY), "the peer shows an epoch that never was")
            check(peer_token == self.token or not self.is_known, "the peer forgets this side's token")
        self.is_known = peer_token == self.token
        # Step 4.
        if epoch == receiver.epoch:
            check(first <= receiver.confirmed + 1, "*first* exceeds *confirmed* + 1")
        # Step 5.
        confirmed_before = sender.confirmed
        self.sends_epoch = False
        if peer_epoch == sender.epoch:
            check(confirmed <= held, "*confirmed* exceeds *held*")
            if continues:
                check(confirmed >= confirmed_before, "*confirmed* goes back")
            if confirmed >= confirmed_before:
                sender.check_positions(held, offset)
        if continues and peer_epoch == sender.epoch:
            sender.confirm(confirmed)
            self.cursor = (held + 1, offset)
        elif continues:
            check(confirmed_before == 0, "the peer forgets this side's epoch")
            self.cursor = (1, 0)
        else:
            has_pending = any(number <= sender.last_sent for number in sender.messages)
            shown_confirmed = confirmed if peer_epoch == sender.epoch else 0
            if has_pending or shown_confirmed < confirmed_before:
                sender.lose_peer()
                self.sends_epoch = True
            self.cursor = (sender.confirmed + 1, 0)
        self.continued[0] += self.cursor[1] > 0
        receiver.last_token, receiver.last_epoch = token, epoch
        # What `take_over` takes over.
        self.offered = (token, epoch, first)
        self.own_cost = 0
        self.streams.resume(token, streams, self.has_restarts)

    def take_over(self):
        """Takes over what the peer's `resume` offers, at the first record after it: this record proves that
        the peer has this side's `resume`. Later records change nothing."""
        if self.offered:
            (token, epoch, first), self.offered = self.offered, None
            self.receiver.token = token
            self.streams.is_known = True
            if epoch != self.receiver.epoch:
                self.begin_peers_epoch(epoch, first)

    def begin_peers_epoch(self, epoch, first):
        self.receiver.begin(epoch, first)
        # Nothing has to be said about messages that the peer does not keep.
        self.told_confirmed = self.receiver.confirmed

    def begin_peers_message(self, number, cost):
        """If a message of the peer, or the peer's end, begins on this link: checks that there is credit, and
        counts the cost."""
        if self.message_on_link != number:
            check(self.peers_cost < self.granted, "a message is begun without credit")
            self.continued[1] += self.message_on_link is None and bool(self.receiver.part)
            self.message_on_link = number
            self.peers_cost += cost

    def read_chunk(self, fields):
        receiver = self.receiver
        number, offset, length = fields.numbers(3)
        data = fields.data
        check(receiver.end is None, "a chunk follows the end")
        check(number == receiver.held + 1, "a chunk is of another message than the next")
        check(offset == len(receiver.part), "a chunk has another offset than the next")
        check(receiver.part_length in (None, length), "a message changes its length")
        check(offset + len(data) <= length <= LONGEST_MESSAGE, "a chunk exceeds its message, or the limit")
        check(data or length == 0, "a chunk is empty")
        self.begin_peers_message(number, length - offset + OVERHEAD)
        total_cost = self.peers_cost
        receiver.part_length = length
        receiver.part += data
        if len(receiver.part) == length:
            receiver.held = number
            receiver.waiting.append((receiver.epoch, number, bytes(receiver.part), total_cost))
            receiver.part, receiver.part_length = bytearray(), None

    def read_record(self, kind, payload):
        fields = Fields(payload)
        if kind in (RESUME, CHUNK, CONFIRM, EPOCH, CREDIT, FINISH, *KINDS):
            check(not self.has_peers_end, "a record follows `end`")
            check((kind == RESUME) != self.is_resumed, "`resume` comes twice, or another record comes before it")
            if kind == RESUME:
                self.read_resume(payload)
                self.is_resumed = True
                return
            self.take_over()
        sender, receiver = self.sender, self.receiver
        if kind == CHUNK:
            self.read_chunk(fields)
        elif kind == CONFIRM:
            epoch, number = fields.identifier(), fields.number()
            fields.end()
            if epoch == sender.epoch:
                check(
                    sender.confirmed < number < self.cursor[0],
                    "a `confirm` of what was confirmed before, or was not sent")
                sender.confirm(number)
                self.is_known = True
            else:
                check(epoch in sender.past_epochs, "a `confirm` of an epoch that never was")
        elif kind == EPOCH:
            epoch = fields.identifier()
            fields.end()
            check(self.has_restarts, "the peer begins an epoch, although nothing was lost")
            check(epoch not in receiver.past_epochs | {receiver.epoch, NOBODY}, "`epoch` begins an old epoch")
            check(self.message_on_link is None, "`epoch` follows chunks")
            self.begin_peers_epoch(epoch, 1)
            receiver.last_epoch = epoch
        elif kind == CREDIT:
            credit = fields.number()
            fields.end()
            check(credit >= self.credit, "a credit is withdrawn")
            self.credit = credit
        elif kind == FINISH:
            number = fields.number()
            fields.end()
            check(receiver.end is None, "`finish` comes twice")
            check(number == receiver.held + 1 and not receiver.part, "`finish` is not behind the messages")
            self.begin_peers_message(number, OVERHEAD)
            receiver.held = receiver.end = number
        elif kind in KINDS:
            stream = self.streams.read(kind, fields, receiver.end is not None)
            if stream:
                self.programs += self.answer_stream(stream)
        elif kind == END:
            check(len(payload) == 1 and not self.has_peers_end, "a malformed `end`")
            check(payload[0] == 0, f"the peer ends the channel with reason {payload[0]}")
            check(self.is_complete, "the peer says that it is complete, but it cannot be complete")
            self.has_peers_end = self.may_exit = True
            self.send(ACK, struct.pack(">Q", 1))
        elif kind == ACK:
            check(payload == struct.pack(">Q", 1), "an `ack` that does not count the `end`")
            check(self.is_end_sent and not self.is_end_acknowledged, "an `ack` of nothing new")
            self.is_end_acknowledged = True
        elif kind == PING:
            check(len(payload) <= 8, "a `ping` of more than 8 bytes")
            self.send(PONG, payload)
        elif kind in (DATA, MORE, PONG, REKEY, READY, REJECT):
            raise Violation(f"a record of type {kind} does not belong here")
        else:
            check(kind >= 0x80, f"a record of type {kind}")

    # What this side sends

    def run_program(self, takes_all):
        """Lets the program take some of what waits for it. Confirms the peer's end without the program."""
        receiver = self.receiver
        count = len(receiver.waiting)
        for _ in range(count if takes_all else self.generator.randrange(count + 1)):
            epoch, number, message, total_cost = receiver.waiting.popleft()
            self.output.write(message)
            self.peers_taken_cost = max(self.peers_taken_cost, total_cost)
            if epoch == receiver.epoch:
                receiver.confirmed = number
        self.output.flush()
        if receiver.end is not None and not receiver.waiting and not receiver.is_end_confirmed:
            receiver.confirmed = receiver.end
            self.peers_taken_cost = self.peers_cost

    def answer_stream(self, stream):
        """The programs for a stream that the peer has opened."""
        return programs(stream, False, self.generator)

    def run_streams(self):
        """Opens a stream now and then, and lets the programs in streams do something."""
        if self.labels and self.generator.random() < 0.3:
            stream = self.streams.open(self.labels.pop(), self.generator.randrange(CLASSES))
            self.programs += programs(stream, True, self.generator)
        # `next` returns the program itself if the program has ended.
        self.programs = [
            program for program in self.programs
            if self.generator.random() < 0.3 or next(program, program) is not program]

    def send_some(self):
        """Seals the next records."""
        sender, receiver = self.sender, self.receiver
        if not self.is_resumed or self.is_end_sent:
            return
        if self.sends_epoch:
            self.send(EPOCH, sender.epoch)
            self.sends_epoch = False
        # The positions belong to the peer's epoch that was taken over.
        if receiver.confirmed != self.told_confirmed:
            self.send(CONFIRM, receiver.epoch + write_number(receiver.confirmed))
            self.told_confirmed = receiver.confirmed
        credit = self.peers_taken_cost + self.window
        if credit - self.granted >= self.window / 2 and time.monotonic() >= self.grants_at:
            self.send(CREDIT, write_number(credit))
            self.granted = credit
        self.streams.send_control(self.send)
        while len(self.link.stream.queue) < QUEUE:
            member = self.streams.next_frame(self.priority if self.can_send_message else None)
            if member is None:
                break
            if self.generator.random() < 0.1:
                self.send(0x80, b"padding that means nothing")
            if member == MESSAGES:
                self.send_message_frame()
            else:
                self.streams.send_frame(member, self.send)
            self.streams.send_control(self.send)
        if self.is_complete:
            # `resume` or `confirm` has told the peer on this link that the peer's end is confirmed.
            self.is_end_sent = True
            self.send(END, b"\0")

    @property
    def can_send_message(self):
        """Whether a chunk may be sent now, or the end. The end may be sent only after every `open`."""
        number = self.cursor[0]
        if number == self.sender.end and (self.labels or not self.streams.has_opened_all):
            return False
        return number <= self.sender.end and (self.begun_number == number or self.own_cost < self.credit)

    def send_message_frame(self):
        sender = self.sender
        number, offset = self.cursor
        message = sender.messages.get(number, b"")
        if self.begun_number != number:
            self.own_cost += len(message) - offset + OVERHEAD
            self.begun_number = number
        if number == sender.end:
            self.send(FINISH, write_number(number))
            sender.note_sent(number, 0)
            self.cursor = (number + 1, 0)
            return
        data = message[offset:offset + self.generator.choice(CHUNKS)]
        self.send(CHUNK, write_numbers(number, offset, len(message)) + data)
        offset += len(data)
        sender.note_sent(number, offset)
        self.cursor = (number, offset) if offset < len(message) else (number + 1, 0)

    # Links

    def run_link(self, link, late_allowance):
        """Carries messages until both sides have ended the channel, or until the link is lost. If
        `late_allowance` is not `None`, cuts the link so many bytes after this side is complete."""
        stream = link.stream
        self.is_ready = False
        self.is_resumed = self.has_peers_end = self.is_end_sent = self.is_end_acknowledged = False
        self.sends_epoch, self.offered, self.begun_number = False, None, None
        if self.role == "dialer":
            self.dial(link)
        else:
            self.accept(link)
        self.exchange_ready(link)
        stream.is_handshake = False
        self.is_ready = True
        self.receiver.waiting = deque(entry[:3] + (0,) for entry in self.receiver.waiting)
        if self.generator.random() < 0.3:
            self.receiver.drop(self.generator.random() < 0.5)
            self.streams.drop()
        self.streams.identify(self.public, self.key)
        self.send_resume()
        while not (self.has_peers_end and self.is_end_acknowledged and not stream.queue):
            if self.is_complete and late_allowance is not None and stream.allowance is None:
                stream.allowance = stream.carried + late_allowance
            is_readable = stream.wait(0.002 if self.programs or self.labels else 0.01)
            if is_readable:
                self.read_record(*self.receive_any())
            is_idle = not is_readable and not stream.queue
            if is_idle or self.generator.random() < 0.1:
                self.run_program(takes_all=is_idle)
            self.run_streams()
            self.send_some()
            check(time.monotonic() < self.deadline, f"not complete in {self.most_seconds} seconds")
        if self.role == "acceptor":
            # The dialer closes once it has this side's acknowledgement.
            check(stream.recv(1) == b"", "bytes arrived after the end")

    def receive_any(self):
        """The next record, of whatever type."""
        plaintext = bytes(self.noise_state.decrypt(self.link.read_framed()))
        check(plaintext, "a record has no type")
        return plaintext[0], plaintext[1:]


def split(data):
    """The messages that carry the data."""
    messages = []
    while data:
        size = SIZES[len(messages) % len(SIZES)]
        messages.append(data[:size])
        data = data[size:]
    return messages


def allowances(count, size, generator):
    """The numbers of bytes after which links are cut. Three of ten links are cut while they shake hands and
    resume, or soon after that. The others are cut after so few bytes that all cuts are made before both sides
    have sent everything."""
    return [
        generator.randrange(1_000 if generator.random() < 0.3 else max(1_000, 2 * size // count))
        for _ in range(count)]


def open_link(role, path, listener, seconds):
    """Dials, or waits to be dialed, for so many seconds. Returns `None` if nobody is there."""
    deadline = time.monotonic() + seconds
    if role == "acceptor":
        listener.settimeout(seconds)
        try:
            stream = listener.accept()[0]
        except TimeoutError:
            return None
        stream.settimeout(60)
        return stream
    while time.monotonic() < deadline:
        try:
            return connect(role, path)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.05)
    return None


def carry(peer, options, cuts, late_allowance=None):
    """Runs the peer on one link after another, and returns how many links there were. The first links are cut
    after the numbers of bytes in `cuts`, the others as `run_link` says, until `options.cuts` cuts are made."""
    listener = None
    if options.role == "acceptor":
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(options.socket)
        listener.listen(1)
        say("listening")
    links = cuts_made = 0
    while True:
        stream = open_link(options.role, options.socket, listener, STAY)
        if stream is None:
            check(peer.is_complete, "the peer is not there")
            break
        links += 1
        if cuts_made == options.cuts:
            late_allowance = None
        stream = CutStream(stream, cuts.pop() if cuts else None)
        try:
            peer.run_link(Link(stream), late_allowance)
            break
        except Cut as cut:
            say(cut)
            cuts_made += 1
        except (EOFError, ConnectionError):
            # When this side is complete, the peer may exit. A link that is opened after that ends before the
            # peer's `ready` has come.
            check(
                peer.is_end_acknowledged or peer.has_restarts or peer.is_complete and not peer.is_ready,
                "the peer has closed the link")
        finally:
            stream.close()
        if peer.may_exit:
            break
    check(cuts_made == options.cuts, f"only {cuts_made} of {options.cuts} cuts were made")
    return links


def run(options):
    generator = random.Random(options.seed)
    with open(options.input, "rb") as file:
        data = file.read()
    labels = [make_label(generator, options.most) for _ in range(options.streams)]
    size = len(data) + sum(int(label.split()[1]) for label in labels)
    cuts = allowances(options.cuts - options.late, size, generator)
    # Once this side is complete, the `end` of each side and its acknowledgement follow: 94 bytes in all.
    late_allowance = generator.randrange(94) if options.late else None
    with open(options.output, "wb") as output:
        peer = DeliveryPeer(
            options.role, base64.b64decode(options.private), split(data), output, options.features, generator,
            options.restarts,
            Streams(os.urandom(16), generator, options.window, options.first_limit, options.open), labels)
        links = carry(peer, options, cuts, late_allowance)
    peer.programs = [program for program in peer.programs if next(program, program) is not program]
    check(not peer.programs, "a program waits for what its stream never gets")
    opened = [len(peer.streams.own), len(peer.streams.peers)]
    check(opened == [options.streams, options.peers_streams], f"{opened} streams were opened")
    say(f"complete: {links} links; a message was continued on {peer.continued[0]} of them by this side, and on "
        f"{peer.continued[1]} by the peer; {peer.sender.unknown} messages unknown")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["dialer", "acceptor"])
    for name in ("private", "socket", "input", "output"):
        parser.add_argument(name)
    parser.add_argument("--cuts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--restarts", action="store_true")
    parser.add_argument("--features", type=int, default=3)
    for name, default in [
            ("streams", 0), ("peers-streams", 0), ("most", 10_000), ("window", 1), ("first-limit", 0),
            ("open", 0)]:
        parser.add_argument("--" + name, type=int, default=default)
    try:
        run(parser.parse_args())
    except Violation as violation:
        sys.exit(f"delivery_peer.py: {violation}")


if __name__ == "__main__":
    main()
