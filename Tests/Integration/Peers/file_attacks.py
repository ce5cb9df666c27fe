"""Attacks on the other side of a file transfer: senders and receivers that break the rules of
docs/wire-format.md, "Files".

Each attack expects what the page says of its case: that the peer gives the stream up as a violation, that the
peer refuses the offer, or that a file fails. After all its attacks a sender sends the file `good`, which must
arrive. The program ends with an error if the peer does anything else.
"""

import fnmatch
import hashlib
import os
import time

from delivery_fields import check, write_number
from delivery_streams import GivenUp
from file_frames import (
    ACCEPT, AGAIN, AGREED, BAD_NAME, CHANGED, DATA, DONE, END, ENDED_BY_USER, FAILED, FAILURE, FILE,
    FIRST_TOO_LARGE, FOLDER, FROM, HAVE, IN_USE, MOST_BYTES, MOST_ENTRIES, MOST_OPEN_FILES, NOT_WANTED, OFFER,
    ONE_FILE,
    PREFIX, PROBLEMS, RECEIVED, RECEIVER_TYPES, REFUSE, RESTART, SENDER_TYPES, SKIP, STORED, TREE, VIOLATION,
    WRONG_HASH, read_text, write_frame)
from file_streams import FrameStream
from negotiated_peer import say

CONTENT = b"12345"
GOOD_CONTENT = b"good"
MOST_NUMBER = (1 << 62) - 1
# The numbers of files and bytes in an offer of a tree. Fewer are sent.
TREE_FILES, TREE_SIZE = 1_000, 100_000
# How long a peer may take to give a stream up, in seconds.
MOST_SECONDS = 5


def digest(content):
    return hashlib.sha256(content).digest()


# Names that are not allowed, in an offer or in a path.
NAMES = {
    "empty": b"",
    "dot": b".",
    "dots": b"..",
    "hidden": b".hidden",
    "partial": b".blesec-partial",
    "long": b"n" * 256,
    "long-in-bytes": "\u00fc".encode() * 128,
    "not-text": b"n\xff",
    "surrogate": b"n\xed\xa0\x80",
    "null": b"n\0n",
    "newline": b"n\nn",
    "escape": b"n\x1b[2Jn",
    "delete": b"n\x7f",
    "control": "n\u0085".encode(),
    "line": "n\u2028".encode(),
    "paragraph": "n\u2029".encode(),
    "direction": "n\u061c".encode(),
    "mark": "n\u200f".encode(),
    "override": "n\u202egpj.exe".encode(),
    "isolate": "n\u2066".encode(),
}
OFFERED_NAMES = NAMES | {
    "slash": b"a/b",
    "absolute": b"/proc/n",
    "up": b"../n",
    "slash-behind": b"n/",
}
PATHS = NAMES | {
    "absolute": b"/n",
    "up": b"../n",
    "up-inside": b"a/../../n",
    "here": b"a/./n",
    "two-slashes": b"a//n",
    "slash-behind": b"a/",
    "hidden-folder": b"a/.b/n",
    "deep": b"/".join([b"a"] * 65),
    "long-path": b"/".join([b"a" * 200] * 21),
}


# Frames of a sender

def an_offer(name=b"bad", kind=ONE_FILE, files=1, size=len(CONTENT), identifier=None, version=None):
    return write_frame(
        OFFER, identifier or os.urandom(16), version or os.urandom(16), kind, files, size, name)


def a_tree(name=b"bad", files=TREE_FILES, size=TREE_SIZE):
    return an_offer(name, TREE, files, size)


def a_file(path=b"bad", size=len(CONTENT), seconds=1, nanoseconds=2, mode=0):
    return write_frame(FILE, size, seconds, nanoseconds, mode, path)


def data(content=CONTENT):
    return write_frame(DATA, content)


def an_end(content=CONTENT):
    return write_frame(END, digest(content))


WHOLE_FILE = a_file() + data() + an_end()


# What a receiver does

def next_frame(frames, skipped=(RECEIVED, STORED)):
    """The next frame whose type is not one of `skipped`."""
    while True:
        frame = yield from frames.wait()
        if frame is None or frame[0] not in skipped:
            return frame


def expect(frames, kind):
    frame = yield from next_frame(frames)
    check(frame and frame[0] == kind, f"{frame and frame[0]} instead of a frame of type {kind}")
    return frame[1]


def expect_refusal(frames, problem, fields=None):
    """Expects that the offer is refused, and that the stream ends. `fields` are those of the `refuse` frame, if
    the caller has read this frame."""
    fields = fields or (yield from expect(frames, REFUSE))
    number, text = fields.number(), read_text(fields)
    say(f"refused: {number} {text}")
    check(number == problem, f"the offer is refused with problem {number} and not {problem}")
    yield from frames.finish()
    yield from frames.expect_end()


def expect_failure(frames, problems, number=0):
    """Expects that a file fails, that the stream ends, and that there is no `done`."""
    failed, problem = (yield from expect(frames, FAILED)).numbers(2)
    say(f"failed: {failed} {problem}")
    check(failed == number and problem in problems, f"file {failed} fails with problem {problem}")
    yield from frames.finish()
    yield from frames.expect_end_without_done()


def expect_done(frames, name):
    yield from frames.finish()
    stored_as = read_text((yield from expect(frames, DONE)))
    check(stored_as == name, f"`{name}` is stored as {stored_as}")
    yield from frames.expect_end()


def expect_violation(frames, codes=(VIOLATION,)):
    """Expects that the peer gives up each direction that has not ended, with one of these codes."""
    outgoing, has_reset = frames.stream.outgoing, False
    deadline = time.monotonic() + MOST_SECONDS
    while outgoing.stop_code is None and not (has_reset and outgoing.is_done):
        check(time.monotonic() < deadline, "the peer does nothing about a violation")
        check(
            not (frames.has_ended and outgoing.is_done), "the peer ends the stream as if nothing were wrong")
        try:
            frame = None if has_reset else frames.take()
            check(frame is None or frame[0] != DONE, "`done` in spite of a violation")
            if frames.output:
                frames.push()
        except GivenUp as error:
            check(error.args[0] in codes, f"the peer gives up with code {error.args[0]}")
            has_reset = True
        yield
    check(outgoing.stop_code in (None, *codes), f"the peer stops with code {outgoing.stop_code}")
    # The peer also gives up its own direction, unless it has ended that direction.
    while not has_reset and not frames.has_ended:
        try:
            frame = frames.take()
            check(frame is None or frame[0] != DONE, "`done` in spite of a violation")
        except GivenUp as error:
            check(error.args[0] in codes, f"the peer gives up with code {error.args[0]}")
            has_reset = True
        check(time.monotonic() < deadline, "the peer gives up one direction only")
        yield
    outgoing.reset(VIOLATION)
    say("given up as a violation")


class RawFrames(FrameStream):
    """Frames that are written as bytes."""

    def write(self, *parts):
        for part in parts:
            self.output += part

    def expect_end_without_done(self):
        frame = yield from next_frame(self)
        check(frame is None, f"a frame of type {frame and frame[0]} where the stream should end")


def send_good(frames):
    frames.write(an_offer(b"good", size=len(GOOD_CONTENT)))
    yield from expect(frames, ACCEPT)
    frames.write(a_file(b"good", len(GOOD_CONTENT)))
    offset = (yield from expect(frames, FROM)).number()
    check(offset == 0, "the receiver says that it holds bytes of a file that was never sent")
    frames.write(data(GOOD_CONTENT), an_end(GOOD_CONTENT))
    yield from expect_done(frames, "good")


# Attacks of a sender, on one stream

def violation_attack(*sent, offer=an_offer, size=len(CONTENT)):
    """Sends these frames after an offer that is accepted, and expects that they are a violation."""
    def attack(frames):
        frames.write(offer(size=size))
        yield from expect(frames, ACCEPT)
        frames.write(*sent)
        yield from expect_violation(frames)
    return attack


def tree_violation_attack(*sent):
    return violation_attack(*sent, offer=a_tree, size=TREE_SIZE)


def immediate_violation_attack(*sent):
    """As `violation_attack`, but sends only these frames."""
    def attack(frames):
        frames.write(*sent)
        yield from expect_violation(frames)
    return attack


def violation_and_end_attack(*sent):
    """As `violation_attack`, and ends the direction after the frames."""
    def attack(frames):
        frames.write(an_offer())
        yield from expect(frames, ACCEPT)
        frames.write(*sent)
        try:
            yield from frames.finish()
        except GivenUp:
            pass
        yield from expect_violation(frames)
    return attack


def bad_name_attack(name, offer):
    def attack(frames):
        frames.write(offer(name))
        yield from expect_refusal(frames, BAD_NAME)
    return attack


def failure_attack(problems, *sent, offer=an_offer, number=0, answers=()):
    """Sends frames that make a file fail with one of these problems."""
    def attack(frames):
        frames.write(offer())
        yield from expect(frames, ACCEPT)
        frames.write(*sent)
        for answer in answers:
            yield from expect(frames, answer)
        yield from expect_failure(frames, problems, number)
    return attack


def not_stored_attack(*sent, offer=an_offer):
    """Sends these frames after an offer. The peer may refuse the offer, end the stream or give it up, but
    sends no `done`."""
    def attack(frames):
        frames.write(offer())
        try:
            kind, _ = (yield from next_frame(frames)) or (None, None)
            check(kind in (ACCEPT, REFUSE), f"an offer is answered with type {kind}")
            if kind == ACCEPT:
                frames.write(*sent)
            yield from frames.finish()
            while frame := (yield from frames.wait()):
                check(frame[0] != DONE, "`done`, where nothing may be stored")
        except GivenUp as error:
            check(error.args[0] == VIOLATION, f"the peer gives up with code {error.args[0]}")
            frames.stream.outgoing.reset(VIOLATION)
    return attack


def tree_not_stored_attack(*sent):
    return not_stored_attack(*sent, offer=a_tree)


def path_failure_attack(path):
    folder = write_frame(FOLDER, b"a") if path.startswith(b"a/") else b""
    return failure_attack([BAD_NAME], folder, a_file(path), offer=a_tree)


def skip_attack(frames):
    """Skips the first of two files. The second one is whole, but the tree is not."""
    frames.write(a_tree())
    yield from expect(frames, ACCEPT)
    frames.write(a_file(b"one"), a_file(b"two"), data(b"1"), write_frame(SKIP, CHANGED), data(), an_end())
    for _ in range(2):
        yield from expect(frames, FROM)
    yield from frames.finish()
    yield from frames.expect_end_without_done()


def same_id_attack(first, second):
    """Offers twice with one id, on two streams. Only the second offer is refused."""
    identifier = os.urandom(16)
    first.write(an_offer(b"first", identifier=identifier))
    yield from expect(first, ACCEPT)
    first.write(a_file(b"first"), data(b"1"))
    yield from expect(first, FROM)
    second.write(an_offer(b"second", identifier=identifier))
    yield from expect_refusal(second, IN_USE)
    first.write(data(b"2345"), an_end())
    yield from expect_done(first, "first")


# Programs of a sender, with as many streams as they need

def offer_until_accepted(open_stream, offer):
    """Repeats an offer until an earlier transfer of it has ended. Returns the stream on which the offer was
    accepted."""
    while True:
        frames = RawFrames(open_stream(), RECEIVER_TYPES)
        frames.write(offer)
        kind, fields = (yield from next_frame(frames)) or (None, None)
        if kind == ACCEPT:
            return frames
        check(kind == REFUSE, f"an offer is answered with type {kind}")
        yield from expect_refusal(frames, IN_USE, fields)


def send_whole(frames, name):
    """Sends the file of an accepted offer, which is then stored under this name."""
    frames.write(WHOLE_FILE)
    yield from expect(frames, FROM)
    yield from expect_done(frames, name)


def offer_unwanted(open_stream, offer):
    """Makes an offer that the receiver's user does not want."""
    frames = RawFrames(open_stream(), RECEIVER_TYPES)
    frames.write(offer)
    yield from expect_refusal(frames, NOT_WANTED)


def same_file_program(open_stream):
    """Offers three versions of a file, with the same id, name and size. The receiver's user wants the first
    version, but not a second time; wants the second version; and does not want the third one."""
    identifier, versions = os.urandom(16), [os.urandom(16) for _ in range(3)]
    offers = [an_offer(identifier=identifier, version=version) for version in versions]
    frames = yield from offer_until_accepted(open_stream, offers[0])
    yield from send_whole(frames, "bad")
    yield from offer_unwanted(open_stream, offers[0])
    frames = yield from offer_until_accepted(open_stream, offers[1])
    frames.write(a_file())
    yield from expect(frames, FROM)
    frames.stream.outgoing.reset(ENDED_BY_USER)
    frames.stream.incoming.stop(ENDED_BY_USER)
    # The transfer has failed, so the user's answer still holds for this offer.
    frames = yield from offer_until_accepted(open_stream, offers[1])
    yield from send_whole(frames, "bad (2)")
    yield from offer_unwanted(open_stream, offers[2])


def stored_but_unread_program(open_stream):
    """Sends a file, and offers it again when the peer has stored it. Only then reads `done` on the first
    stream."""
    offer = an_offer(identifier=os.urandom(16), version=os.urandom(16))
    first = yield from offer_until_accepted(open_stream, offer)
    first.write(WHOLE_FILE)
    yield from first.finish()
    second = yield from offer_until_accepted(open_stream, offer)
    second.write(a_file())
    yield from expect(second, HAVE)
    yield from expect_done(second, "bad")
    yield from expect(first, FROM)
    stored_as = read_text((yield from expect(first, DONE)))
    check(stored_as == "bad", f"`bad` is stored as {stored_as}")
    yield from first.expect_end()


def stored_then_reset_program(open_stream):
    """Gives up the stream of a file that is stored. Offers another file, which is refused, and then the stored
    file again."""
    offer = an_offer(identifier=os.urandom(16), version=os.urandom(16))
    frames = yield from offer_until_accepted(open_stream, offer)
    frames.write(WHOLE_FILE)
    yield from expect(frames, FROM)
    frame = yield from next_frame(frames, (RECEIVED,))
    check(frame and frame[0] == STORED, f"{frame and frame[0]} instead of `stored`")
    frames.stream.outgoing.reset(ENDED_BY_USER)
    frames.stream.incoming.stop(ENDED_BY_USER)
    yield from offer_unwanted(open_stream, an_offer(b"other"))
    frames = yield from offer_until_accepted(open_stream, offer)
    frames.write(a_file())
    yield from expect(frames, HAVE)
    yield from expect_done(frames, "bad")


def second_copy_program(open_stream):
    """Makes an offer a second time while the file is received. Ends the second stream, on which the offer is
    refused, only after the file and another one are stored."""
    offer = an_offer(identifier=os.urandom(16), version=os.urandom(16))
    first = yield from offer_until_accepted(open_stream, offer)
    first.write(a_file())
    yield from expect(first, FROM)
    second = RawFrames(open_stream(), RECEIVER_TYPES)
    second.write(offer)
    refusal = yield from expect(second, REFUSE)
    first.write(data(), an_end())
    yield from expect_done(first, "bad")
    other = yield from offer_until_accepted(open_stream, an_offer(b"first"))
    other.write(a_file(b"first"), data(), an_end())
    yield from expect(other, FROM)
    yield from expect_done(other, "first")
    yield from expect_refusal(second, IN_USE, refusal)


SENDER_PROGRAMS = {
    "same-file": same_file_program,
    "unread": stored_but_unread_program,
    "stored-then-reset": stored_then_reset_program,
    "second-copy": second_copy_program,
}


TOO_MANY_FILES = b"".join(a_file(b"%d" % number) for number in range(MOST_OPEN_FILES + 1))
SENDER_ATTACKS = {
    "no-offer": immediate_violation_attack(a_file()),
    "offer-of-kind-2": immediate_violation_attack(an_offer(kind=2)),
    "offer-of-2^61-bytes": immediate_violation_attack(an_offer(size=FIRST_TOO_LARGE)),
    "offer-of-2^61-files": immediate_violation_attack(an_offer(kind=TREE, files=FIRST_TOO_LARGE)),
    "offer-of-too-many-files": immediate_violation_attack(an_offer(kind=TREE, files=MOST_ENTRIES + 1)),
    "offer-of-two-files-as-one": immediate_violation_attack(an_offer(files=2)),
    "offer-of-2^62-1-bytes": immediate_violation_attack(an_offer(size=MOST_NUMBER)),
    "offer-without-name-and-numbers": immediate_violation_attack(write_frame(OFFER, bytes(16))),
    "offer-twice": violation_attack(an_offer()),
    "offer-twice-at-once": immediate_violation_attack(an_offer(), an_offer()),
    "file-before-accept": immediate_violation_attack(an_offer(), WHOLE_FILE),
    "second-file": violation_attack(WHOLE_FILE, a_file(b"other")),
    "folder-of-file": violation_attack(write_frame(FOLDER, b"bad")),
    "data-without-file": violation_attack(data()),
    "end-without-file": violation_attack(an_end()),
    "skip-without-file": violation_attack(write_frame(SKIP, CHANGED)),
    "data-behind-end": violation_attack(WHOLE_FILE, data()),
    "end-twice": violation_attack(WHOLE_FILE, an_end()),
    "nanoseconds": violation_attack(a_file(nanoseconds=1_000_000_000)),
    "mode": violation_attack(a_file(mode=2)),
    "more-data": violation_attack(a_file(), data(CONTENT + b"6")),
    "more-data-later": violation_attack(a_file(), data(), data(b"6"), an_end(CONTENT + b"6")),
    "data-of-empty-file": violation_attack(a_file(size=0), data(), size=0),
    "fewer-data": violation_attack(a_file(), data(CONTENT[:4]), an_end(CONTENT[:4])),
    "no-data": violation_attack(a_file(), an_end()),
    "empty-data": violation_attack(a_file(), data(b"")),
    "prefix": violation_attack(a_file(), write_frame(PREFIX, digest(b""))),
    "again": violation_attack(a_file(), data(), write_frame(AGAIN)),
    "skip-with-byte": violation_attack(a_file(), write_frame(SKIP, CHANGED, b"!")),
    "short-hash": violation_attack(a_file(), data(), write_frame(END, digest(CONTENT)[:31])),
    "long-hash": violation_attack(a_file(), data(), write_frame(END, digest(CONTENT), b"!")),
    "long-frame": violation_attack(a_file(size=100_000), data(bytes(MOST_BYTES + 1)), size=100_000),
    "very-long-frame": violation_attack(a_file(), bytes([DATA]) + write_number(MOST_NUMBER)),
    "long-number": violation_attack(a_file(), b"\x04\x40\x05" + CONTENT),
    "long-number-inside": violation_attack(write_frame(FILE, b"\x40\x05", 1, 2, 0, b"bad")),
    "end-in-frame": violation_and_end_attack(a_file() + data()[:-1]),
    "end-in-file": violation_and_end_attack(a_file(), data()),
    "end-without-file-at-all": violation_and_end_attack(),
    "257-files": tree_violation_attack(TOO_MANY_FILES),
    "other-path": not_stored_attack(a_file(b"other"), data(), an_end()),
    "skip-0": not_stored_attack(a_file(), write_frame(SKIP, 0)),
    "skip-10": not_stored_attack(a_file(), write_frame(SKIP, 10)),
    "file-twice": tree_not_stored_attack(a_file(), a_file(), data(), an_end(), data(), an_end()),
    "file-as-folder": tree_not_stored_attack(a_file(b"a"), data(), an_end(), a_file(b"a/b"), data(), an_end()),
    "size-of-2^61": violation_attack(a_file(size=FIRST_TOO_LARGE)),
    "size-of-2^62-1": violation_attack(a_file(size=MOST_NUMBER)),
    "size-of-2^61-1": violation_attack(a_file(size=FIRST_TOO_LARGE - 1)),
    "time-of-2^61": failure_attack(PROBLEMS, a_file(seconds=FIRST_TOO_LARGE)),
    "sum-of-2^61": tree_violation_attack(a_file(b"1", FIRST_TOO_LARGE - 1), a_file(b"2", FIRST_TOO_LARGE - 1)),
    "more-bytes-than-offered": tree_violation_attack(a_file(b"1", TREE_SIZE - 4), a_file(b"2")),
    "more-files-than-offered": violation_attack(
        a_file(b"1"), data(), an_end(), a_file(b"2"), offer=lambda size: a_tree(files=1, size=size), size=10),
    "smaller-than-offered": violation_attack(a_file(size=4)),
    "wrong-hash": failure_attack([WRONG_HASH], a_file(), data(), an_end(b"54321"), answers=[FROM]),
    "skip": skip_attack,
    "same-id": same_id_attack,
}
for number in RECEIVER_TYPES:
    SENDER_ATTACKS[f"type-{number:02x}"] = violation_attack(a_file(), write_frame(number, 0, 1))
for number in (0x00, 0x09, 0x10, 0x1B, 0x80, 0xFF):
    SENDER_ATTACKS[f"type-{number:02x}"] = violation_attack(a_file(), write_frame(number))
for name, value in OFFERED_NAMES.items():
    SENDER_ATTACKS[f"name-{name}"] = bad_name_attack(value, an_offer)
    SENDER_ATTACKS[f"tree-{name}"] = bad_name_attack(value, a_tree)
for name, value in PATHS.items():
    SENDER_ATTACKS[f"path-{name}"] = path_failure_attack(value)
    SENDER_ATTACKS[f"folder-{name}"] = failure_attack(
        [BAD_NAME], write_frame(FOLDER, value), offer=a_tree, number=TREE_FILES)


# Attacks of a receiver

def answer_attack(*sent, after=FILE, ends=False):
    """Accepts the offer, unless `after` is `OFFER`. Sends these frames as soon as a frame of type `after` has
    come, and then ends the direction if `ends` is true. Expects that the peer gives up with the code for a
    violation; if `ends` is true, the code for a failure is accepted too."""
    codes = (VIOLATION, FAILURE) if ends else (VIOLATION,)

    def attack(frames):
        yield from expect(frames, OFFER)
        if after != OFFER:
            frames.put(ACCEPT)
            yield from expect(frames, FILE)
        if after in (PREFIX, END):
            frames.put(FROM, HELD_COUNT if after == PREFIX else 0)
            frame = yield from next_frame(frames, [DATA])
            check(frame and frame[0] == after, f"no frame of type {after}")
        try:
            frames.write(*sent)
            if ends:
                yield from frames.finish()
            yield from expect_violation(frames, codes)
        except GivenUp as error:
            check(error.args[0] in codes, f"the peer gives up with code {error.args[0]}")
    return attack


def refusal_attack(*parts):
    """Refuses the offer; both directions end."""
    def attack(frames):
        yield from expect(frames, OFFER)
        frames.put(REFUSE, *parts)
        yield from frames.finish()
        yield from frames.expect_end()
    return attack


# How many bytes a receiver says that it holds.
HELD_COUNT = 10
FROM_ZERO = write_frame(FROM, 0)
RECEIVER_ATTACKS = {
    "from-above-size": answer_attack(write_frame(FROM, MOST_NUMBER)),
    "from-twice": answer_attack(FROM_ZERO, FROM_ZERO),
    "have-twice": answer_attack(write_frame(HAVE), write_frame(HAVE)),
    "from-with-byte": answer_attack(write_frame(FROM, 0, 0)),
    "stored-too-early": answer_attack(FROM_ZERO, write_frame(STORED, 1)),
    "stored-without-answer": answer_attack(write_frame(STORED, 1)),
    "stored-beyond": answer_attack(write_frame(STORED, 2), after=END),
    "stored-less": answer_attack(write_frame(STORED, 1), write_frame(STORED, 0), after=END),
    "done-too-early": answer_attack(FROM_ZERO, write_frame(DONE, b"bad")),
    "done-without-answer": answer_attack(write_frame(DONE, b"bad")),
    "done-after-failure": answer_attack(write_frame(FAILED, 0, WRONG_HASH), write_frame(DONE, b"bad"), after=END),
    "agreed-without-prefix": answer_attack(FROM_ZERO, write_frame(AGREED, 0)),
    "restart-without-prefix": answer_attack(FROM_ZERO, write_frame(RESTART, 0)),
    "agreed-without-answer": answer_attack(write_frame(AGREED, 0)),
    "agreed-twice": answer_attack(write_frame(AGREED, 0), write_frame(AGREED, 0), after=PREFIX),
    "restart-twice": answer_attack(write_frame(RESTART, 0), write_frame(RESTART, 0), after=PREFIX),
    "restart-behind-agreed": answer_attack(write_frame(AGREED, 0), write_frame(RESTART, 0), after=PREFIX),
    "failed-unknown-file": answer_attack(FROM_ZERO, write_frame(FAILED, 7, NOT_WANTED)),
    "failed-after-stored": answer_attack(write_frame(STORED, 1), write_frame(FAILED, 0, NOT_WANTED), after=END),
    "failed-twice": answer_attack(
        FROM_ZERO, write_frame(FAILED, 0, NOT_WANTED), write_frame(FAILED, 0, NOT_WANTED)),
    "agreed-to-other-file": answer_attack(write_frame(AGREED, 1), after=PREFIX),
    "received-too-much": answer_attack(FROM_ZERO, write_frame(RECEIVED, MOST_NUMBER)),
    "accept-twice": answer_attack(write_frame(ACCEPT)),
    "refuse-behind-accept": answer_attack(write_frame(REFUSE, NOT_WANTED, b"no")),
    "accept-with-byte": answer_attack(write_frame(ACCEPT, b"!"), after=OFFER),
    "long-frame-of-receiver": answer_attack(bytes([RECEIVED]) + write_number(MOST_BYTES + 1)),
    "long-number-of-receiver": answer_attack(b"\x13\x40\x01\x00"),
    "end-in-frame-of-receiver": answer_attack(FROM_ZERO[:-1], ends=True),
    "end-without-answer": answer_attack(ends=True, after=OFFER),
    "end-behind-accept": answer_attack(ends=True),
}
for number, parts in {
        FROM: [0], HAVE: [], AGREED: [0], RESTART: [0], RECEIVED: [0], FAILED: [0, NOT_WANTED], STORED: [0],
        DONE: [b"bad"]}.items():
    RECEIVER_ATTACKS[f"before-accept-{number:02x}"] = answer_attack(write_frame(number, *parts), after=OFFER)
for number in [*SENDER_TYPES, 0x00, 0x09, 0x10, 0x1B, 0x80, 0xFF]:
    RECEIVER_ATTACKS[f"answer-{number:02x}"] = answer_attack(write_frame(number, b""))
RECEIVER_ATTACKS["refuse"] = refusal_attack(NOT_WANTED, b"not now")
RECEIVER_ATTACKS["refuse-with-escape"] = refusal_attack(NOT_WANTED, "\x1b[2J\u202e\n\nhuh".encode())


ATTACKS = SENDER_ATTACKS | SENDER_PROGRAMS | RECEIVER_ATTACKS


def find(pattern):
    """The names of the attacks that match this pattern, as in a shell."""
    names = fnmatch.filter(ATTACKS, pattern)
    check(names, f"no attack is called {pattern}")
    return names


def sender_program(names, open_stream):
    """The program of a sender, which makes one attack after another and then sends the file `good`."""
    for name in names:
        count = 2 if name == "same-id" else 1
        say(f"attack {name}")
        if name in SENDER_PROGRAMS:
            yield from SENDER_PROGRAMS[name](open_stream)
            continue
        yield from SENDER_ATTACKS[name](*[RawFrames(open_stream(), RECEIVER_TYPES) for _ in range(count)])
    yield from send_good(RawFrames(open_stream(), RECEIVER_TYPES))


def receiver_program(name, stream):
    """The program of a receiver, which makes one attack."""
    say(f"attack {name}")
    return RECEIVER_ATTACKS[name](RawFrames(stream, SENDER_TYPES))
