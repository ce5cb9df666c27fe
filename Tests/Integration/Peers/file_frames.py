"""The frames of docs/wire-format.md, "Files", and which names are allowed."""

import unicodedata
from collections import namedtuple

from delivery_fields import Fields, check, write_number, write_numbers

LABEL = "blesec-files/1"
# The class of a stream of files.
BULK = 2
# The types of the frames that a sender sends, and of those that a receiver sends.
SENDER_TYPES = OFFER, FILE, FOLDER, DATA, PREFIX, END, AGAIN, SKIP = range(0x01, 0x09)
RECEIVER_TYPES = ACCEPT, REFUSE, FROM, HAVE, AGREED, RESTART, RECEIVED, FAILED, STORED, DONE = range(0x11, 0x1B)
ONE_FILE, TREE = range(2)
(NOT_WANTED, BAD_NAME, NO_SPACE, CANNOT_WRITE, IN_USE, CHANGED, CANNOT_READ, WRONG_HASH,
 OTHER) = PROBLEMS = range(1, 10)
# The codes with which a stream is given up.
FAILURE, ENDED_BY_USER, VIOLATION = range(3)

# The most bytes of a frame after its length, and the most announced files that have not ended.
MOST_BYTES = 65_536
MOST_OPEN_FILES = 256
# The first number that is too large for a size, a time or a sum of bytes, and the most files, or folders, of
# a tree.
FIRST_TOO_LARGE = 1 << 61
MOST_ENTRIES = 1_000_000
BILLION = 1_000_000_000
PARTIAL = ".blesec-partial"
LINE_SEPARATORS = "\u2028\u2029"
BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

Offer = namedtuple("Offer", "identifier version kind files size name")
File = namedtuple("File", "size seconds nanoseconds mode path")


def write_frame(kind, *parts):
    """A frame; the parts are numbers and bytes."""
    body = b"".join(write_number(part) if isinstance(part, int) else bytes(part) for part in parts)
    return bytes([kind]) + write_number(len(body)) + body


def take_frame(data):
    """Removes the first frame from a buffer. Returns the frame's type and fields, or `None` if the frame has not
    arrived completely."""
    if len(data) < 2:
        return None
    width = 1 << (data[1] >> 6)
    if len(data) < 1 + width:
        return None
    length = Fields(bytes(data[1:1 + width])).number()
    check(length <= MOST_BYTES, "a frame is too long")
    if len(data) < 1 + width + length:
        return None
    kind, body = data[0], bytes(data[1 + width:1 + width + length])
    del data[:1 + width + length]
    return kind, Fields(body)


def read_text(fields):
    try:
        return fields.rest().decode()
    except UnicodeDecodeError:
        return check(False, "a text is not UTF-8")


def read_offer(fields):
    identifier, version = fields.identifier(), fields.identifier()
    kind, files, size = fields.numbers(3)
    check(kind in (ONE_FILE, TREE), "an offer of another kind")
    check(files <= MOST_ENTRIES and size < FIRST_TOO_LARGE, "an offer has too many files or bytes")
    return Offer(identifier, version, kind, files, size, read_text(fields))


def read_file(fields):
    file = File(*fields.numbers(4), read_text(fields))
    check(file.nanoseconds < BILLION, "a second or more in nanoseconds")
    check(file.mode <= 1, "an unknown mode")
    return file


def read_hash(fields):
    value = fields.take(32)
    fields.end()
    return value


def read_single_number(fields):
    """Reads the contents of a frame that has one number and nothing else."""
    number = fields.number()
    fields.end()
    return number


def write_file(file):
    return write_numbers(*file[:4]) + file.path.encode()


def is_allowed(name, allows_hidden=False):
    """Whether a part of a path may have this name."""
    if not 1 <= len(name.encode()) <= 255 or name in (".", "..", PARTIAL):
        return False
    if name.startswith(".") and not allows_hidden:
        return False
    return not any(
        character == "/" or unicodedata.category(character) == "Cc" or character in LINE_SEPARATORS + BIDI_CONTROLS
        for character in name)


def is_allowed_path(path, allows_hidden=False):
    parts = path.split("/")
    return len(path.encode()) <= 4_096 and len(parts) <= 64 and all(
        is_allowed(part, allows_hidden) for part in parts)
