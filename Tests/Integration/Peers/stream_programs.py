"""What the programs at both ends of a stream do.

The label of a stream is `KIND COUNT CODE TEXT`, and both programs know from it what to expect. With every
kind but `quit`, the opener of the stream sends COUNT bytes. The program at the other end does this:

    echo    sends them back, and both read to the end
    reset   sends back what comes, and the opener resets its direction after its bytes
    waver   as `reset`, but the opener finishes first, so that either the end or the reset arrives
    refuse  reads half of them, and then stops the opener's direction; the opener does not finish
    leave   as `refuse`, but the opener finishes
    enough  reads all of them, and then stops the opener's direction; if the end has arrived by then, the
            opener gets `done` without a `stop`
    back    sends half of them back, and resets its direction, but reads to the end
    quit    sends COUNT bytes itself, and does not finish; the opener sends none, reads half of them, and then
            stops the other side's direction

Programs are Python generators, which yield while they have to wait.
"""

from delivery_fields import check
from delivery_streams import GivenUp

KINDS = ["echo", "echo", "echo", "reset", "waver", "refuse", "leave", "enough", "back", "quit"]
PIECES = [1, 100, 1_000, 10_000]
# The texts in labels.
TEXTS = ["", "x", "größe", "a b c", "ü" * 100, "\N{PILE OF POO}" * 50]


def make_label(random, most):
    """A label for a stream of at most `most` bytes."""
    kind = random.choice(KINDS)
    count = random.choice([0, 1, 10, most // 10, most])
    if kind in ("refuse", "leave", "enough", "quit"):
        count = max(2, count)
    return f"{kind} {count} {random.randrange(1 << 32)} {random.choice(TEXTS)}"


def pattern(count):
    return bytes((31 * index + index // 251) % 251 for index in range(count))


def write_in_pieces(stream, data, random):
    """Writes all the data, in pieces."""
    while data:
        piece = data[:random.choice(PIECES)]
        while piece:
            count = stream.outgoing.write(piece)
            data, piece = data[count:], piece[count:]
            if not count or random.random() < 0.1:
                yield


def read_piece(stream, random, most=1 << 20):
    """The next bytes, at most `most`, or `None` at the end."""
    while True:
        data = stream.incoming.read(min(most, random.choice(PIECES)))
        if data is None or data:
            return data
        yield


def read_all(stream, random):
    """All bytes up to the end or the peer's `reset`; and the code of the `reset`, or `None` if there was none."""
    everything = b""
    try:
        while (data := (yield from read_piece(stream, random))) is not None:
            everything += data
            if random.random() < 0.1:
                yield
    except GivenUp as reset:
        return everything, reset.args[0]
    return everything, None


def read_exactly(stream, count, random):
    """Exactly `count` bytes."""
    everything = b""
    while len(everything) < count:
        data = yield from read_piece(stream, random, count - len(everything))
        check(data is not None, "a stream ends early")
        everything += data
    return everything


def wait_until_done(stream):
    """Waits for `done`. Returns the code of the peer's `stop`; `None` if there was none, or if this side had
    reset the direction before."""
    while not stream.outgoing.is_done:
        yield
    return stream.outgoing.stop_code


def programs(stream, is_opener, random):
    """The programs of a stream, which run side by side."""
    kind, count, code, _ = stream.label.split(" ", 3)
    count, code = int(count), int(code)
    if not is_opener:
        return [answer(stream, kind, count, code, random)]
    data = random.randbytes(0 if kind == "quit" else count)
    return [begin(stream, kind, data, code, random), check_answer(stream, kind, count, data, code, random)]


def begin(stream, kind, data, code, random):
    try:
        yield from write_in_pieces(stream, data, random)
        if kind == "reset":
            stream.outgoing.reset(code)
        elif kind != "refuse":
            stream.outgoing.finish()
        if kind == "waver":
            if random.random() < 0.5:
                yield
            stream.outgoing.reset(code)
    except GivenUp as stop:
        check(
            kind in ("refuse", "leave", "enough") and stop.args[0] == code,
            f"`{kind}` is stopped with code {stop.args[0]}")
    stop_code = yield from wait_until_done(stream)
    if kind in ("refuse", "leave"):
        check(stop_code == code, f"`{kind}` is done, and the code of its `stop` is {stop_code}")
    else:
        check(
            stop_code is None or kind == "enough" and stop_code == code,
            f"`{kind}` is done, and the code of its `stop` is {stop_code}")


def check_answer(stream, kind, count, data, code, random):
    if kind == "quit":
        half = yield from read_exactly(stream, count // 2, random)
        check(half == pattern(count)[:count // 2], "other bytes than the pattern")
        stream.incoming.stop(code)
        return
    answer, reset = yield from read_all(stream, random)
    check(reset == (code if kind == "back" else None), f"an answer to `{kind}` ends with {reset}")
    if kind == "echo":
        check(answer == data, "an echo has other bytes")
    elif kind in ("refuse", "leave", "enough"):
        check(answer == b"", "an answer where there should be none")
    else:
        check(data.startswith(answer), "the beginning of an echo has other bytes")


def answer(stream, kind, count, code, random):
    if kind in ("refuse", "leave", "enough"):
        yield from read_exactly(stream, count if kind == "enough" else count // 2, random)
        stream.incoming.stop(code)
        stream.outgoing.finish()
    elif kind == "back":
        half = yield from read_exactly(stream, count // 2, random)
        yield from write_in_pieces(stream, half, random)
        stream.outgoing.reset(code)
        rest, reset = yield from read_all(stream, random)
        check(reset is None and len(half + rest) == count, "`back` does not end after its bytes")
    elif kind == "quit":
        try:
            yield from write_in_pieces(stream, pattern(count), random)
        except GivenUp as stop:
            check(stop.args[0] == code, f"`quit` is stopped with code {stop.args[0]}")
        stop_code = yield from wait_until_done(stream)
        check(stop_code == code, f"`quit` is done, and the code of its `stop` is {stop_code}")
        rest, reset = yield from read_all(stream, random)
        check(rest == b"" and reset is None, "`quit` has bytes")
    else:
        received = 0
        try:
            while (data := (yield from read_piece(stream, random))) is not None:
                received += len(data)
                yield from write_in_pieces(stream, data, random)
            check(kind != "reset" and received == count, f"`{kind}` ends after {received} bytes")
        except GivenUp as reset:
            check(kind != "echo" and reset.args[0] == code, f"`{kind}` is reset with code {reset.args[0]}")
        stream.outgoing.finish()
