"""Both ends of a stream that carries a file or a tree, written from docs/wire-format.md, "Files".

The programs are Python generators, which yield while they have to wait. They check what the other side sends
against the page.
"""

import hashlib
import os
from collections import namedtuple

from delivery_fields import check
from file_frames import (
    ACCEPT, AGAIN, AGREED, CHANGED, DATA, DONE, END, ENDED_BY_USER, FAILED, FILE, FIRST_TOO_LARGE, FOLDER,
    FROM, HAVE, MOST_BYTES, MOST_OPEN_FILES, OFFER, ONE_FILE, PREFIX, PROBLEMS, RECEIVED, RECEIVER_TYPES,
    REFUSE, RESTART, SENDER_TYPES, SKIP, STORED, TREE, WRONG_HASH, File, Offer, is_allowed, is_allowed_path,
    read_file, read_hash, read_offer, read_single_number, read_text, take_frame, write_file, write_frame)
from negotiated_peer import say

# The numbers of bytes in frames of data, and how many bytes of frames may wait until the stream takes them.
PIECES = [1, 1_000, 16_384, MOST_BYTES]
QUEUE = 100_000
# A receiver sends `received` at least once for so many bytes.
MEBIBYTE = 1 << 20

Source = namedtuple("Source", "offer entries")


class FrameStream:
    """A stream as a sequence of frames in each direction."""

    def __init__(self, stream, peers_types):
        self.stream = stream
        self.peers_types = peers_types
        self.input, self.output = bytearray(), bytearray()
        self.has_ended = False

    def put(self, kind, *parts):
        self.output += write_frame(kind, *parts)

    def push(self):
        """Gives the stream as many bytes as it takes."""
        count = self.stream.outgoing.write(bytes(self.output))
        del self.output[:count]

    def take(self):
        """The next frame, or `None` if it has not arrived. Sets `has_ended` if no further frame will come."""
        while True:
            frame = take_frame(self.input)
            if frame:
                check(frame[0] in self.peers_types, f"a frame of type {frame[0]}")
                return frame
            if self.has_ended:
                return None
            data = self.stream.incoming.read(1 << 20)
            if data is None:
                self.has_ended = True
                check(not self.input, "a stream ends inside a frame")
            elif not data:
                return None
            else:
                self.input += data

    def wait(self):
        """The next frame, or nothing at the end."""
        while True:
            if self.output:
                self.push()
            frame = self.take()
            if frame or self.has_ended:
                return frame
            yield

    def expect(self, kind):
        """The fields of the next frame, which must have this type."""
        frame = yield from self.wait()
        check(frame is not None, f"a stream ends before a frame of type {kind}")
        check(frame[0] == kind, f"a frame of type {frame[0]} instead of {kind}")
        return frame[1]

    def finish(self):
        """Ends this side's direction after the frames that wait."""
        while self.output:
            self.push()
            yield
        self.stream.outgoing.finish()

    def expect_end(self):
        """Waits until the other side has ended its direction and has taken this side's bytes. No frame may
        come before that."""
        frame = yield from self.wait()
        check(frame is None, "a frame where the stream should end")
        while not self.stream.outgoing.is_done:
            yield
        check(
            self.stream.outgoing.stop_code is None, "the peer wants no more, although everything is done")


# The sender

def find_source(path):
    """The offer of a file or a folder, and the entries that it has. An entry is a pair: a `File` and its place
    on the disk, or the path of a folder in the tree and `None`."""
    path = os.path.abspath(path)
    kind = TREE if os.path.isdir(path) else ONE_FILE
    entries = []
    if kind == ONE_FILE:
        entries.append((describe(path, os.path.basename(path)), path))
    else:
        for folder, folders, names in os.walk(path):
            folders.sort()
            if folder != path:
                entries.append((os.path.relpath(folder, path), None))
            entries += [
                (describe(os.path.join(folder, name), os.path.relpath(os.path.join(folder, name), path)),
                 os.path.join(folder, name))
                for name in sorted(names)]
    files = [entry for entry, place in entries if place]
    # The id of a file also depends on the file's size and time.
    identity = f"{path} {files[0][:3] if kind == ONE_FILE else ''}"
    identifier = hashlib.sha256(identity.encode()).digest()[:16]
    size = sum(file.size for file in files)
    version = hashlib.sha256(repr([entry for entry, _ in entries]).encode()).digest()[:16]
    return Source(Offer(identifier, version, kind, len(files), size, os.path.basename(path)), entries)


def describe(path, name):
    status = os.stat(path)
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    return File(status.st_size, seconds, nanoseconds, int(bool(status.st_mode & 0o100)), name)


def put_offer(frames, offer):
    frames.put(OFFER, *offer[:-1], offer.name.encode())


class FileSender:
    """Offers a file or a tree on a stream of this side."""

    def __init__(self, stream, path, generator, give_up=None, settles=False, prefix="right"):
        self.frames = FrameStream(stream, RECEIVER_TYPES)
        self.source = find_source(path)
        self.generator = generator
        # `give_up`: after how many bytes of data the user ends the transfer; `None` for a whole transfer.
        # `settles`: whether the sender, before it gives up, waits until all files that have ended are stored.
        # `prefix`: whether the hash in `prefix` is `right`, `early` (right, and sent before all data) or
        # `wrong`.
        self.give_up, self.settles, self.prefix = give_up, settles, prefix
        self.sent = 0
        self.files = [entry for entry in self.source.entries if entry[1]]
        # The answers to the announced files: the type `FROM` with an offset, or `HAVE` or `FAILED` with `None`.
        self.answers = []
        # How many files, counted from the first, have ended, and how many the peer has stored; how many bytes
        # the peer has received; and which files have failed.
        self.ended = self.stored = self.received = 0
        self.failed = set()
        # Whether a `prefix` was sent and has no answer yet, the answer to the last `prefix`, and the name in `done`.
        self.is_prefix_unanswered = False
        self.prefix_answer = None
        self.name = None

    def run(self):
        frames, offer = self.frames, self.source.offer
        put_offer(frames, offer)
        kind, fields = (yield from frames.wait()) or (None, None)
        check(kind in (ACCEPT, REFUSE), "an answer to an offer is of another type")
        if kind == REFUSE:
            problem = fields.number()
            check(problem in PROBLEMS, "an unknown problem")
            say(f"refused {offer.name}: {problem} {read_text(fields)}")
            yield from frames.finish()
            yield from frames.expect_end()
            return
        fields.end()
        waiting, announced = list(self.source.entries), 0
        # The generator that sends the current file; `None` until the file is answered.
        current = None
        while waiting or self.ended < announced:
            self.read_frames()
            while waiting and (waiting[0][1] is None or announced < self.ended + MOST_OPEN_FILES):
                entry, place = waiting.pop(0)
                if place:
                    frames.put(FILE, write_file(entry))
                    announced += 1
                else:
                    frames.put(FOLDER, entry.encode())
            if current is None and self.ended < len(self.answers):
                current = self.send_current(*self.files[self.ended])
            # `next` returns its second argument if the generator has ended.
            if current and next(current, current) is current:
                current = None
                self.ended += 1
            frames.push()
            if self.give_up is not None and self.sent >= self.give_up:
                while self.received < self.sent or self.settles and self.stored < self.ended:
                    if frames.output:
                        frames.push()
                    self.read_frames()
                    yield
                say(f"given up after {self.sent} bytes")
                frames.stream.outgoing.reset(ENDED_BY_USER)
                frames.stream.incoming.stop(ENDED_BY_USER)
                return
            yield
            while len(frames.output) > QUEUE:
                frames.push()
                yield
        yield from frames.finish()
        while not frames.has_ended:
            self.read_frames()
            yield
        while not frames.stream.outgoing.is_done:
            yield
        check((self.name is None) == bool(self.failed), "`done` does not agree with whether a file has failed")
        check(self.stored == len(self.files), "not all files are stored")
        check(self.failed or self.received == sum(file.size for file, _ in self.files),
              "`received` is not the sum of all sizes")
        if self.name is None:
            say(f"failed {offer.name}: {sorted(self.failed)}")
        else:
            say(f"sent {offer.name} as {self.name}")

    def read_frames(self):
        while frame := self.frames.take():
            kind, fields = frame
            check(self.name is None, "a frame follows `done`")
            if kind == FROM:
                offset = read_single_number(fields)
                file = self.files[len(self.answers)][0] if len(self.answers) < len(self.files) else None
                check(file and offset <= file.size, "`from` is above the size, or answers nothing")
                self.answers.append((FROM, offset))
                if offset:
                    say(f"from {offset} of {file.path}")
            elif kind == HAVE:
                fields.end()
                say(f"have {self.files[len(self.answers)][0].path}")
                self.answers.append((HAVE, None))
            elif kind in (AGREED, RESTART):
                number = read_single_number(fields)
                check(number == self.ended and self.is_prefix_unanswered, "an answer to no `prefix`")
                self.is_prefix_unanswered, self.prefix_answer = False, kind
                if kind == RESTART:
                    # What was held is not held any more.
                    self.received = 0
                say("agreed" if kind == AGREED else "restart")
            elif kind == RECEIVED:
                received = read_single_number(fields)
                check(received >= self.received, "`received` becomes less")
                check(received <= sum(file.size for file, _ in self.files), "`received` has too many bytes")
                self.received = received
            elif kind == FAILED:
                number, problem = fields.numbers(2)
                fields.end()
                check(problem in PROBLEMS, "an unknown problem")
                # A file number equal to the number of files means a folder, or the tree itself.
                is_tree = self.source.offer.kind == TREE and number == len(self.files)
                check(
                    is_tree or self.stored <= number <= len(self.answers), "`failed` names another file")
                check(number not in self.failed, "a file fails twice")
                self.failed.add(number)
                say(f"problem {problem} with file {number}")
                if number == len(self.answers) and not is_tree:
                    self.answers.append((FAILED, None))
            elif kind == STORED:
                stored = read_single_number(fields)
                check(self.stored <= stored <= self.storable_count(), "`stored` counts other files")
                self.stored = stored
            elif kind == DONE:
                self.name = read_text(fields)
                check(self.ended == len(self.files) and not self.failed, "`done` comes too early")
                check(is_allowed(self.name, True), "`done` has a name that is not allowed")
            else:
                check(False, f"a frame of type {kind} out of place")

    def storable_count(self):
        """The most files, counted from the first, that `stored` may count: those that have ended, and those
        directly behind them that were answered with `have` or `failed`."""
        number = self.ended
        while number < len(self.answers) and self.answers[number][0] != FROM:
            number += 1
        return number

    def send_current(self, file, place):
        """Sends the current file, which the peer has answered, until the file has ended."""
        frames, number = self.frames, self.ended
        answer, offset = self.answers[number]
        if answer != FROM or number in self.failed:
            if answer == FROM:
                frames.put(SKIP, CHANGED)
            return
        with open(place, "rb") as opened:
            content = opened.read()
        digest = hashlib.sha256(content).digest()
        self.prefix_answer, cursor = None, offset
        owes_prefix = offset != 0
        prefix_at = offset
        if self.prefix != "early" and offset < file.size:
            prefix_at = self.generator.randrange(offset + 1, file.size + 1)
        while True:
            if number in self.failed:
                frames.put(SKIP, CHANGED)
                return
            if owes_prefix and cursor >= prefix_at:
                wrong = b"wrong" if self.prefix == "wrong" else b""
                frames.put(PREFIX, hashlib.sha256(content[:offset] + wrong).digest())
                owes_prefix, self.is_prefix_unanswered = False, True
            if self.prefix_answer == RESTART:
                frames.put(AGAIN)
                # From here on the file continues as if the peer had agreed: `end` follows the data.
                cursor, self.prefix_answer = 0, AGREED
            if cursor < file.size:
                piece = content[cursor:cursor + self.generator.choice(PIECES)]
                frames.put(DATA, piece)
                cursor += len(piece)
                self.sent += len(piece)
            elif (not owes_prefix and not self.is_prefix_unanswered
                    and (offset == 0 or self.prefix_answer == AGREED)):
                frames.put(END, digest)
                return
            yield


# The receiver

class FileReceiver:
    """Receives, on a stream that the peer has opened, a file or a tree, and stores it in a folder."""

    def __init__(self, stream, folder, generator, hold=None):
        self.frames = FrameStream(stream, SENDER_TYPES)
        self.folder = folder
        self.generator = generator
        # The bytes that this side claims to hold of the first file that is not empty; `None` if it claims none.
        self.hold = hold
        self.folders = set()
        # The files that were announced, and the offset in the answer to each; how many, counted from the
        # first, have ended; and which have failed.
        self.files, self.offsets = [], []
        self.ended = 0
        self.failed = set()
        # How many bytes are written, how many the peer was told of, and how many files the peer knows as stored.
        self.written = self.told_received = self.stored = 0
        # The content of the current file, and the held bytes, with which its `prefix` is compared.
        self.content, self.held = None, b""
        # Whether `prefix` is still to come, whether data is dropped until `again`, and whether the held bytes
        # are agreed on, which is also true if none are held.
        self.expects_prefix = self.is_dropping = self.is_agreed = False

    def run(self):
        frames = self.frames
        offer = read_offer((yield from frames.expect(OFFER)))
        check(is_allowed(offer.name), "a name that is not allowed")
        self.offer = offer
        self.partial = os.path.join(self.folder, f".partial-{offer.identifier.hex()}")
        self.place = os.path.join(self.folder, offer.name)
        check(not os.path.lexists(self.place), "the name is in use")
        os.makedirs(self.partial)
        frames.put(ACCEPT)
        while not frames.has_ended:
            frame = frames.take()
            if frame:
                self.read_frame(*frame)
            if self.written - self.told_received >= MEBIBYTE or not frame:
                self.report()
            if not frame:
                frames.push()
                yield
        check(self.ended == len(self.files), "the stream ends inside a file")
        check(offer.kind == TREE or len(self.files) == 1, "an offer of a file has another number of files")
        if not self.failed:
            self.report()
            place = self.partial if offer.kind == TREE else os.path.join(self.partial, offer.name)
            os.rename(place, self.place)
            if offer.kind == ONE_FILE:
                os.rmdir(self.partial)
            frames.put(DONE, offer.name.encode())
        yield from frames.finish()
        yield from frames.expect_end()
        total_size = sum(file.size for file in self.files)
        check((offer.files, offer.size) == (len(self.files), total_size), "the offer has other numbers")
        say(f"failed {offer.name}: {sorted(self.failed)}" if self.failed else f"received {offer.name}")

    def report(self):
        """Says what was received and stored, if it is more than before."""
        if self.written > self.told_received:
            self.frames.put(RECEIVED, self.written)
            self.told_received = self.written
        if self.ended > self.stored:
            self.frames.put(STORED, self.ended)
            self.stored = self.ended

    def path(self, path):
        return os.path.join(self.partial, *path.split("/"))

    def check_path(self, path):
        check(is_allowed_path(path), f"a path that is not allowed: {path!r}")
        parent = path.rpartition("/")[0]
        check(not parent or parent in self.folders, f"{path!r} comes before its folder")

    def read_frame(self, kind, fields):
        if kind == FOLDER:
            check(self.offer.kind == TREE, "a folder in a file")
            path = read_text(fields)
            self.check_path(path)
            check(path not in self.folders, "a folder comes twice")
            self.folders.add(path)
            os.mkdir(self.path(path))
        elif kind == FILE:
            self.read_announcement(read_file(fields))
        elif kind == OFFER:
            check(False, "a second offer on a stream")
        else:
            check(self.ended < len(self.files), f"a frame of type {kind} without a file")
            self.read_current(kind, fields, self.files[self.ended], self.offsets[self.ended])

    def read_announcement(self, file):
        self.check_path(file.path)
        check(max(file.size, file.seconds) < FIRST_TOO_LARGE, "a size or a time is too large")
        check(file.path not in [announced.path for announced in self.files], "a file comes twice")
        check(self.offer.kind == TREE or (self.files, file.path) == ([], self.offer.name), "another file")
        check(len(self.files) - self.ended < MOST_OPEN_FILES, "too many files are announced")
        total_size = sum(announced.size for announced in [*self.files, file])
        check(len(self.files) < self.offer.files and total_size <= self.offer.size, "more than was offered")
        offset = 0
        if self.hold is not None and file.size:
            self.held, self.hold = self.hold, None
            offset = len(self.held)
            check(offset <= file.size, "more is held than the file has")
        self.files.append(file)
        self.offsets.append(offset)
        self.frames.put(FROM, offset)
        self.written += offset
        if len(self.files) == self.ended + 1:
            self.begin()

    def begin(self):
        """Begins the current file."""
        offset = self.offsets[self.ended]
        self.content = bytearray(self.held[:offset])
        self.expects_prefix, self.is_dropping, self.is_agreed = offset != 0, False, offset == 0

    def end(self, failed):
        if failed:
            self.failed.add(self.ended)
        self.ended += 1
        if self.ended < len(self.files):
            self.begin()

    def read_current(self, kind, fields, file, offset):
        frames = self.frames
        if kind == DATA:
            data = fields.rest()
            check(data, "`data` is empty")
            if self.is_dropping:
                return
            self.content += data
            self.written += len(data)
            check(len(self.content) <= file.size, "a file has more data than its size")
        elif kind == PREFIX:
            digest = read_hash(fields)
            check(self.expects_prefix, "a `prefix` without need, or a second one")
            self.expects_prefix = False
            self.is_agreed = digest == hashlib.sha256(self.held).digest()
            say(f"agreed to {offset} bytes, {len(self.content) - offset} behind them"
                if self.is_agreed else "restart")
            frames.put(AGREED if self.is_agreed else RESTART, self.ended)
            self.is_dropping = not self.is_agreed
        elif kind == AGAIN:
            fields.end()
            check(self.is_dropping, "`again` without need")
            self.is_dropping, self.is_agreed = False, True
            # The file's bytes come again, and are then counted again.
            self.written -= len(self.content)
            self.told_received = min(self.told_received, self.written)
            self.content.clear()
        elif kind == END:
            digest = read_hash(fields)
            check(len(self.content) == file.size and self.is_agreed, "`end` comes too early")
            is_right = digest == hashlib.sha256(self.content).digest()
            if is_right:
                self.store(file)
            else:
                frames.put(FAILED, self.ended, WRONG_HASH)
            self.end(not is_right)
        elif kind == SKIP:
            problem = read_single_number(fields)
            check(problem in PROBLEMS, "an unknown problem")
            say(f"skipped {file.path}: {problem}")
            self.end(True)

    def store(self, file):
        path = self.path(file.path)
        with open(path, "xb") as opened:
            opened.write(self.content)
        os.chmod(path, 0o755 if file.mode else 0o644)
        time = file.seconds * 1_000_000_000 + file.nanoseconds
        os.utime(path, ns=(time, time))
