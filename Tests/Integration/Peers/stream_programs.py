"""What the programs at both ends of a stream do.

The label of a stream is `KIND COUNT CODE TEXT`, and both programs know from it what to expect. With every
kind but `quit`, the opener of the stream sends COUNT bytes. The program at the other end does this:

    echo    sends them back, and both read to the end
    reset   sends back what comes, and the opener gives its direction up after its bytes
    waver   as `reset`, but the opener finishes first and then resets, so that either may arrive
    refuse  reads half of them, and wants no more, while the opener has not finished
    leave   as `refuse`, but the opener finishes
    enough  reads all of them, and wants no more, so that they count as taken or as given up
    back    sends half of them back, and gives its direction up, but reads to the end
    quit    the opener sends none, the other one sends COUNT bytes and does not finish, and the opener reads
            half of them and wants no more

Programs are generators, which yield while they have to wait.
"""

from delivery_fields import check
from delivery_streams import WasReset

KINDS = ["echo", "echo", "echo", "reset", "waver", "refuse", "leave", "enough", "back", "quit"]
PIECES = [1, 100, 1_000, 10_000]
# The texts in labels.
TEXTS = ["", "x", "größe", "a b c", "ü" * 100, "\N{PILE OF POO}" * 50]


def make_label(generator, most):
    """A label for a stream of at most `most` bytes."""
    kind = generator.choice(KINDS)
    count = generator.choice([0, 1, 10, most // 10, most])
    if kind in ("refuse", "leave", "enough", "quit"):
        count = max(2, count)
    return f"{kind} {count} {generator.randrange(1 << 32)} {generator.choice(TEXTS)}"


def pattern(count):
    return bytes((31 * index + index // 251) % 251 for index in range(count))


def write_some(stream, data, generator):
    """Writes bytes in pieces."""
    while data:
        piece = data[:generator.choice(PIECES)]
        while piece:
            count = stream.outgoing.write(piece)
            data, piece = data[count:], piece[count:]
            if not count or generator.random() < 0.1:
                yield


def read_piece(stream, generator, most=1 << 20):
    """The next bytes, at most `most`, or `None` at the end."""
    while True:
        data = stream.incoming.read(min(most, generator.choice(PIECES)))
        if data is None or data:
            return data
        yield


def read_all(stream, generator):
    """All bytes up to the end or the `reset`, and the code of the `reset`; `None` at the end."""
    everything = b""
    try:
        while (data := (yield from read_piece(stream, generator))) is not None:
            everything += data
            if generator.random() < 0.1:
                yield
    except WasReset as reset:
        return everything, reset.args[0]
    return everything, None


def read_count(stream, count, generator):
    """Exactly `count` bytes."""
    everything = b""
    while len(everything) < count:
        data = yield from read_piece(stream, generator, count - len(everything))
        check(data is not None, "a stream ends early")
        everything += data
    return everything


def wait_until_done(stream):
    """Waits for `done`. Returns the code with which the peer has wanted no more."""
    while not stream.outgoing.is_done:
        yield
    return stream.outgoing.stop_code


def programs(stream, is_opener, generator):
    """The programs of a stream, which run side by side."""
    kind, count, code, _ = stream.label.split(" ", 3)
    count, code = int(count), int(code)
    if not is_opener:
        return [answer(stream, kind, count, code, generator)]
    data = generator.randbytes(0 if kind == "quit" else count)
    return [begin(stream, kind, data, code, generator), check_answer(stream, kind, count, data, code, generator)]


def begin(stream, kind, data, code, generator):
    try:
        yield from write_some(stream, data, generator)
        if kind == "reset":
            stream.outgoing.reset(code)
        elif kind != "refuse":
            stream.outgoing.finish()
        if kind == "waver":
            if generator.random() < 0.5:
                yield
            stream.outgoing.reset(code)
    except WasReset as reset:
        check(kind in ("refuse", "leave", "enough") and reset.args[0] == code, "the peer wants no more")
    stop_code = yield from wait_until_done(stream)
    if kind in ("refuse", "leave"):
        check(stop_code == code, f"a direction was taken in spite of `{kind}`")
    else:
        check(stop_code is None or kind == "enough" and stop_code == code, "the peer wants no more")


def check_answer(stream, kind, count, data, code, generator):
    if kind == "quit":
        half = yield from read_count(stream, count // 2, generator)
        check(half == pattern(count)[:count // 2], "other bytes than the pattern")
        stream.incoming.stop(code)
        return
    answer, reset = yield from read_all(stream, generator)
    check(reset == (code if kind == "back" else None), f"an answer to `{kind}` ends with {reset}")
    if kind == "echo":
        check(answer == data, "an echo has other bytes")
    elif kind in ("refuse", "leave", "enough"):
        check(answer == b"", "an answer where there should be none")
    else:
        check(data.startswith(answer), "the beginning of an echo has other bytes")


def answer(stream, kind, count, code, generator):
    if kind in ("refuse", "leave", "enough"):
        yield from read_count(stream, count if kind == "enough" else count // 2, generator)
        stream.incoming.stop(code)
        stream.outgoing.finish()
    elif kind == "back":
        half = yield from read_count(stream, count // 2, generator)
        yield from write_some(stream, half, generator)
        stream.outgoing.reset(code)
        rest, reset = yield from read_all(stream, generator)
        check(reset is None and len(half + rest) == count, "`back` does not end after its bytes")
    elif kind == "quit":
        try:
            yield from write_some(stream, pattern(count), generator)
        except WasReset as reset:
            check(reset.args[0] == code, "`quit` has another code")
        stop_code = yield from wait_until_done(stream)
        check(stop_code == code, "a direction that the peer's program quits was taken")
        rest, reset = yield from read_all(stream, generator)
        check(rest == b"" and reset is None, "`quit` has bytes")
    else:
        received = 0
        try:
            while (data := (yield from read_piece(stream, generator))) is not None:
                received += len(data)
                yield from write_some(stream, data, generator)
            check(kind != "reset" and received == count, f"`{kind}` ends after {received} bytes")
        except WasReset as reset:
            check(kind != "echo" and reset.args[0] == code, f"`{kind}` is given up with {reset.args[0]}")
        stream.outgoing.finish()
