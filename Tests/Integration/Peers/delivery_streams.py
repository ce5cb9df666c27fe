"""The streams of one end of a delivery, written from docs/delivery.md, "Streams".

`Streams` has the state, reads and writes the records, and checks what the peer sends against the page.
Nothing in this file knows what the programs at the ends of a stream say to each other; that is in
`stream_programs.py`.
"""

import hashlib
from collections import namedtuple

from delivery_fields import NOBODY, check, write_number, write_numbers

OPEN, BYTES, FIN, RESET, STOP, LIMIT, DONE, STREAMS = KINDS = range(0x0F, 0x17)
# The states of an entry in `resume`. `TAKEN` is the page's *done*.
RECEIVING, COMPLETE, TAKEN = range(3)
MOST_ENTRIES = 512
# The classes are 0 (the most urgent), 1 and 2. At most `OVERTAKING` frames of more urgent classes overtake a class
# that waits.
CLASSES = 3
OVERTAKING = 8
# Stands for the messages where they take turns with streams. They have every second frame of their class.
MESSAGES = "messages"
# The DER of an X25519 key's SubjectPublicKeyInfo, without the key.
X25519 = bytes.fromhex("302a300506032b656e032100")
# The lengths of frames, in bytes. A frame has two numbers of at most 8 bytes before its bytes.
FRAMES = [1, 100, 5_000, 16_384, 65_518 - 16]
# How many bytes of a direction this side keeps: more than any window in the tests, so that this side can use
# the peer's whole window.
QUEUE = 200_000

Entry = namedtuple("Entry", "state received limit")


class GivenUp(Exception):
    """The other side has given up a direction, with `reset` or `stop`. The argument is the code."""


class Outgoing:
    """The direction of this side's bytes. Positions count from the beginning of the direction."""

    def __init__(self):
        # The bytes from `acknowledged` on.
        self.data = bytearray()
        # What the peer is known to have, what was ever sent, and what is sent next on this link.
        self.acknowledged = self.sent = self.cursor = 0
        self.limit = None
        self.size = self.reset_code = None
        # The code of the peer's `stop`, if this side had not given the direction up before.
        self.stop_code = None
        # Whether `fin` or `reset` was ever sent, and whether it was sent on this link.
        self.is_fin_sent = self.is_reset_sent = False
        self.is_fin_on_link = self.is_reset_on_link = False
        # Whether the peer's `stop` has come on this link.
        self.has_stop = False
        # Whether the peer has everything up to `fin`, and whether its program has taken everything.
        self.is_complete = self.is_done = False

    @property
    def written(self):
        return self.acknowledged + len(self.data)

    def write(self, data):
        """Queues bytes, and returns how many."""
        if self.stop_code is not None:
            raise GivenUp(self.stop_code)
        assert self.size is None and self.reset_code is None
        data = data[:max(0, QUEUE - len(self.data))]
        self.data += data
        return len(data)

    def finish(self):
        if self.reset_code is None:
            self.size = self.written

    def reset(self, code):
        if self.reset_code is None and not self.is_done:
            self.reset_code = code

    @property
    def sendable_count(self):
        """How many bytes may be sent now."""
        if self.reset_code is not None or self.is_done:
            return 0
        return max(0, min(self.limit, self.written) - self.cursor)

    def begin_anew(self, limit):
        """Begins a direction of which the peer has nothing."""
        assert self.acknowledged == 0
        self.cursor, self.limit = 0, limit
        self.is_fin_on_link = self.is_reset_on_link = self.has_stop = False

    def acknowledge(self, received, limit, sent):
        check(self.acknowledged <= received, "*received* is less than what was acknowledged")
        check(received <= sent, "*received* exceeds what was sent")
        check(received <= limit, "*received* exceeds the limit")
        check(limit >= self.limit, "a stream's limit is withdrawn")
        del self.data[:received - self.acknowledged]
        self.acknowledged, self.limit = received, limit

    def resume(self, entry):
        """Takes the entry for this direction in the peer's `resume`. The caller passes a `TAKEN` entry if the
        peer sent none."""
        self.is_fin_on_link = self.is_reset_on_link = self.has_stop = False
        if entry.state == RECEIVING:
            check(not self.is_done and not self.is_complete, "a direction was further on an earlier link")
            self.acknowledge(entry.received, entry.limit, self.sent)
            self.cursor = entry.received
            return
        check(self.is_fin_sent or self.is_reset_sent, "a direction has ended without `fin` or `reset`")
        self.cursor = self.written
        if entry.state == COMPLETE:
            check(not self.is_done, "a direction was taken on an earlier link")
            self.is_complete = True
        else:
            self.is_done = True


class Incoming:
    """The direction of the peer's bytes."""

    def __init__(self, window):
        self.window = self.limit = window
        # What the program has not taken.
        self.data = bytearray()
        # How many bytes have arrived, and how many the peer was told of.
        self.received = self.told_received = 0
        # Whether `fin` has come, and whether the peer was told so.
        self.has_fin = self.told_complete = False
        # The code of the peer's `reset`, and the code of this side's `stop`.
        self.reset_code = self.stop_code = None
        # Whether `reset` has come on this link, and whether `stop` was sent on it.
        self.has_reset = self.is_stop_on_link = False
        # If `stop_code` is set: whether the program had taken all bytes before the stop, and none has arrived
        # since.
        self.had_all = False
        # Whether the program has taken everything or has learned of the reset, and whether `done` or
        # `resume` has said so.
        self.is_taken = self.is_done = False

    def read(self, count):
        """The next bytes, at most `count`: `b""` if the program has to wait, `None` at the end."""
        if self.reset_code is not None:
            self.is_taken = True
            raise GivenUp(self.reset_code)
        data = bytes(self.data[:count])
        del self.data[:count]
        if data or not self.has_fin:
            return data
        self.is_taken = True
        return None

    def stop(self, code):
        self.stop_code = code
        self.had_all = not self.data
        self.data.clear()
        self.is_taken = self.reset_code is not None or self.has_fin and self.had_all

    @property
    def next_limit(self):
        return self.received - len(self.data) + self.window

    def entry(self):
        """What `resume` says of this direction."""
        if self.is_taken:
            self.is_done = True
            return [TAKEN]
        if self.has_fin:
            self.told_complete = True
            return [COMPLETE]
        self.told_received = self.received
        return [RECEIVING, self.received, self.limit]

    def drop(self):
        """Drops what the peer was not told of."""
        if (self.reset_code is None and self.stop_code is None and not self.is_taken
                and not self.told_complete):
            count = min(self.received - self.told_received, len(self.data))
            del self.data[len(self.data) - count:]
            self.received -= count
            self.has_fin = self.has_fin and count == 0


class Stream:
    def __init__(self, identifier, label, priority, window):
        self.identifier, self.label, self.priority = identifier, label, priority
        self.outgoing, self.incoming = Outgoing(), Incoming(window)
        # Whether `open` was ever sent or received; and whether it was sent on this link, or the peer is known
        # to have it.
        self.may_be_known = self.is_open = False

    @property
    def is_over(self):
        return self.outgoing.is_done and self.incoming.is_done


class Streams:
    def __init__(self, token, generator, window, first_limit, most_open):
        self.token = token
        self.generator = generator
        # What `resume` says, and how many streams of the peer may be open at a time.
        self.window, self.first_limit, self.most_open = window, first_limit, most_open
        self.parity = None
        # The token of the peer's last `resume`, and whether the peer has surely received a `resume` of this side.
        self.peer_token = NOBODY
        self.is_known = False
        self.begin()

    def begin(self):
        """Forgets all streams, and numbers new ones from the start."""
        # The streams that each side has opened, in their order.
        self.own, self.peers = [], []
        # How many streams the peer was told that it may open, and how many this side may open.
        self.granted, self.allowed = self.first_limit, None
        # The peer's last *opened*.
        self.opened_there = 0
        self.peers_window = self.peers_first_limit = None
        # For each class, how many frames have overtaken it; and the streams and `MESSAGES` in the order in which
        # their last frames have left.
        self.overtaken = [0] * CLASSES
        self.turns = []

    def identify(self, key, peers_key):
        """Decides which numbers the streams of this side have."""
        own_digest, peers_digest = [hashlib.sha256(X25519 + raw).digest() for raw in (key, peers_key)]
        self.parity = 0 if own_digest < peers_digest else 1

    @property
    def all(self):
        return self.own + self.peers

    @property
    def is_over(self):
        return all(stream.is_over for stream in self.all)

    @property
    def has_opened_all(self):
        """Whether no `open` of this side is still to be sent on this link."""
        return all(stream.is_open for stream in self.own)

    def open(self, label, priority):
        stream = Stream(2 * len(self.own) + self.parity, label, priority, self.window)
        self.own.append(stream)
        return stream

    def drop(self):
        for stream in self.all:
            if self.generator.random() < 0.5:
                stream.incoming.drop()

    # What `resume` says

    def resume_fields(self):
        entries = []
        for stream in self.all:
            if stream.may_be_known and not stream.is_over:
                entry = stream.incoming.entry()
                # If the stream is over with this entry, the entry may be left out.
                if not stream.is_over or self.generator.random() < 0.5:
                    entries.append(write_numbers(stream.identifier, *entry))
        self.told_stream_peer = self.peer_token
        self.generator.shuffle(entries)
        return b"".join([
            write_numbers(self.window, self.first_limit), self.told_stream_peer,
            write_numbers(len(self.peers), self.granted, len(entries)), *entries])

    def read_fields(self, fields):
        """The fields in the peer's `resume`."""
        window, first_limit = fields.numbers(2)
        stream_peer = fields.identifier()
        opened, limit, count = fields.numbers(3)
        check(window >= 1, "the window of streams is empty")
        check(count <= MOST_ENTRIES, "too many entries")
        entries = {}
        for _ in range(count):
            identifier, state = fields.numbers(2)
            check(state <= TAKEN, "an unknown state")
            check(identifier not in entries, "a stream has two entries")
            entries[identifier] = Entry(state, *(fields.numbers(2) if state == RECEIVING else (None, None)))
        return window, first_limit, stream_peer, opened, limit, entries

    def resume(self, token, peers_fields, may_be_lost):
        """Continues the streams, or loses them, after the steps for messages."""
        window, first_limit, stream_peer, opened, limit, entries = peers_fields
        is_replaced = token != self.peer_token != NOBODY
        if is_replaced or self.is_known and stream_peer != self.token:
            check(may_be_lost, "the streams are lost")
            self.is_known = False
            self.begin()
        if self.peers_window is not None:
            check(window == self.peers_window, "the window of new streams changes")
            check(first_limit == self.peers_first_limit, "the first limit changes")
        self.peers_window, self.peers_first_limit = window, first_limit
        self.peer_token = token
        if self.told_stream_peer != token:
            self.granted = self.first_limit
        if stream_peer != self.token:
            check(may_be_lost or stream_peer == NOBODY, "the streams belong to an instance that never was")
            if stream_peer == NOBODY:
                check(opened == 0 and not entries, "streams that belong to nobody")
            opened, limit, entries = 0, first_limit, {}
        else:
            self.is_known = True
        check(opened <= sum(stream.may_be_known for stream in self.own), "*opened* exceeds the number opened")
        check(opened >= self.opened_there, "*opened* goes back")
        check(self.allowed is None or limit >= self.allowed, "the limit of streams is withdrawn")
        self.opened_there, self.allowed = opened, limit
        for identifier, entry in entries.items():
            index = identifier // 2
            if identifier % 2 == self.parity:
                check(index < opened, "an entry of a stream from *opened* on")
            elif index >= len(self.peers):
                check(index < self.granted, "an entry of a stream beyond the limit")
                check(
                    entry.state == RECEIVING and entry.received == 0,
                    "an entry has bytes of a stream that was never open here")
        for index, stream in enumerate(self.own):
            stream.is_open = index < opened
        for stream in self.own[:opened] + self.peers:
            entry = entries.get(stream.identifier)
            if stream.is_over:
                check(entry is None or entry.state == TAKEN, "an entry says less of a stream that is over")
                continue
            if entry is None:
                check(stream.incoming.is_done, "a stream is over for the peer, and not done here")
            stream.outgoing.resume(entry or Entry(TAKEN, None, None))
        for stream in self.all:
            stream.incoming.has_reset = stream.incoming.is_stop_on_link = False

    # What the peer sends

    def find(self, identifier):
        streams = self.own if identifier % 2 == self.parity else self.peers
        check(identifier // 2 < len(streams), "a record of a stream that was never opened")
        stream = streams[identifier // 2]
        check(stream.is_open, "a record of a stream that the peer does not have")
        return stream

    def read(self, kind, fields, has_peers_finish):
        """Handles a record of a stream. Returns the stream if it is new."""
        if kind == OPEN:
            return self.read_open(fields, has_peers_finish)
        if kind == STREAMS:
            limit = fields.number()
            fields.end()
            check(limit > self.allowed, "`streams` allows no more than before")
            self.allowed = limit
            return None
        stream = self.find(fields.number())
        outgoing, incoming = stream.outgoing, stream.incoming
        check(kind == RESET or not stream.is_over, f"a record of type {kind} of a stream that is over")
        if kind in (BYTES, FIN):
            position = fields.number()
            check(not incoming.has_fin, f"a record of type {kind} behind `fin`")
            check(incoming.reset_code is None, f"a record of type {kind} behind `reset`")
            check(position == incoming.received, f"a record of type {kind} at another offset than the next")
        if kind == BYTES:
            data = fields.rest()
            check(data, "`bytes` is empty")
            incoming.received += len(data)
            check(incoming.received <= incoming.limit, "`bytes` exceeds the limit")
            if incoming.stop_code is None:
                incoming.data += data
            else:
                incoming.had_all = False
        elif kind == FIN:
            incoming.has_fin = True
            if incoming.stop_code is not None and incoming.had_all and self.generator.random() < 0.5:
                # Everything has been taken; the `reset` that comes will have no effect.
                incoming.is_taken = True
        elif kind in (RESET, STOP):
            code = fields.number()
            check(code < 1 << 32, "a code of more than 32 bits")
            if kind == RESET:
                check(not incoming.has_reset, "`reset` comes twice")
                incoming.has_reset = True
                if not incoming.is_taken:
                    incoming.reset_code = code
                    incoming.is_taken = incoming.stop_code is not None
            else:
                check(not outgoing.is_done, "`stop` of a direction that is done")
                check(not outgoing.has_stop, "`stop` comes twice")
                outgoing.has_stop = True
                if outgoing.reset_code is None:
                    outgoing.stop_code = outgoing.reset_code = code
        elif kind == LIMIT:
            check(not outgoing.is_done, "`limit` of a direction that is done")
            received, limit = fields.numbers(2)
            check(limit > outgoing.limit, "`limit` allows no more than before")
            outgoing.acknowledge(received, limit, outgoing.cursor)
        elif kind == DONE:
            check(not outgoing.is_done, "`done` comes twice")
            check(
                outgoing.is_fin_on_link or outgoing.is_reset_on_link or outgoing.is_complete,
                "`done` without `fin` or `reset`")
            outgoing.is_done = True
        fields.end()
        return None

    def read_open(self, fields, has_peers_finish):
        identifier, priority = fields.numbers(2)
        label = fields.rest()
        check(not has_peers_finish, "`open` follows `finish`")
        check(identifier == 2 * len(self.peers) + 1 - self.parity, "`open` has another number than the next")
        check(len(self.peers) < self.granted, "`open` exceeds the limit")
        check(priority < CLASSES, "an unknown class")
        check(len(label) <= 255, "a label is too long")
        try:
            label = label.decode()
        except UnicodeDecodeError:
            check(False, "a label is not UTF-8")
        stream = Stream(identifier, label, priority, self.window)
        stream.may_be_known = stream.is_open = True
        stream.outgoing.begin_anew(self.peers_window)
        self.peers.append(stream)
        return stream

    # What this side sends

    def send_control(self, send):
        """Sends everything but bytes."""
        for stream in self.own[:self.allowed]:
            if not stream.is_open:
                send(OPEN, write_numbers(stream.identifier, stream.priority) + stream.label.encode())
                stream.outgoing.begin_anew(self.peers_window)
                stream.may_be_known = stream.is_open = True
        for stream in self.all:
            if stream.is_open and not stream.is_over:
                self.send_ends(stream, send)
                self.send_answers(stream, send)
        granted = sum(stream.is_over for stream in self.peers) + self.most_open
        if granted > self.granted and self.generator.random() < 0.3:
            send(STREAMS, write_number(granted))
            self.granted = granted

    def send_ends(self, stream, send):
        outgoing = stream.outgoing
        if outgoing.is_done:
            return
        if outgoing.reset_code is not None:
            if not outgoing.is_reset_on_link:
                send(RESET, write_numbers(stream.identifier, outgoing.reset_code))
                outgoing.is_reset_on_link = outgoing.is_reset_sent = True
        elif outgoing.size == outgoing.cursor and not outgoing.is_fin_on_link and not outgoing.is_complete:
            send(FIN, write_numbers(stream.identifier, outgoing.size))
            outgoing.is_fin_on_link = outgoing.is_fin_sent = True

    def send_answers(self, stream, send):
        """Sends what the receiver of a direction says."""
        incoming = stream.incoming
        if incoming.is_done:
            return
        if incoming.stop_code is not None and not incoming.is_taken and not incoming.is_stop_on_link:
            send(STOP, write_numbers(stream.identifier, incoming.stop_code))
            incoming.is_stop_on_link = True
        limit = incoming.next_limit
        # The peer may keep fewer bytes than this side's window, and then waits for an acknowledgement.
        is_due = (
            2 * (limit - incoming.limit) >= incoming.window
            or not incoming.data and incoming.received > incoming.told_received
            and self.generator.random() < 0.3)
        is_receiving = incoming.stop_code is None and incoming.reset_code is None and not incoming.has_fin
        if is_receiving and limit > incoming.limit and (is_due or self.generator.random() < 0.01):
            send(LIMIT, write_numbers(stream.identifier, incoming.received, limit))
            incoming.limit, incoming.told_received = limit, incoming.received
        if incoming.is_taken:
            send(DONE, write_number(stream.identifier))
            incoming.is_done = True

    def next_frame(self, messages_class):
        """What has the next frame: a stream, or `MESSAGES`, or `None`. `messages_class` is the class of the
        messages, or `None` if nothing of a message may be sent."""
        waiting = [stream for stream in self.all if stream.is_open and stream.outgoing.sendable_count]
        classes = {stream.priority for stream in waiting} | ({messages_class} - {None})
        if not classes:
            return None
        overdue_classes = [priority for priority in classes if self.overtaken[priority] >= OVERTAKING]
        chosen = max(overdue_classes) if overdue_classes else min(classes)
        for priority in range(CLASSES):
            if priority == chosen or priority not in classes:
                self.overtaken[priority] = 0
            elif priority > chosen:
                self.overtaken[priority] += 1
        members = [stream for stream in waiting if stream.priority == chosen]
        if messages_class == chosen and (not members or self.turns[-1:] != [MESSAGES]):
            member = MESSAGES
        else:
            # A stream of which no frame has left, or the one whose last frame has left the longest ago.
            member = min(
                members, key=lambda stream: self.turns.index(stream) if stream in self.turns else -1)
        self.turns = [entry for entry in self.turns if entry is not member] + [member]
        return member

    def send_frame(self, stream, send):
        outgoing = stream.outgoing
        count = min(outgoing.sendable_count, self.generator.choice(FRAMES))
        start = outgoing.cursor - outgoing.acknowledged
        send(BYTES, write_numbers(stream.identifier, outgoing.cursor) + outgoing.data[start:start + count])
        outgoing.cursor += count
        outgoing.sent = max(outgoing.sent, outgoing.cursor)
