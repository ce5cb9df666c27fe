#!/usr/bin/python3
"""leave.py: runs two chats over a Unix socket. One chat ends its input while the other writes.

    Tests/Campaigns/leave.py [--tool PATH] [--rounds N] [--lines N] [--seed N]

Every line that the writer reports as delivered must be on the other chat's standard output, in
order and once, and in each round at least one line must be reported. Prints a line for each round,
and ends with `N passed, N failed`.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIME_LIMIT = 60  # seconds


class Chat:
    """A `blesec chat` whose standard output and standard error are saved in files."""

    def __init__(self, tool, folder, name, *options):
        self.output, self.reports = folder / f"{name}.written", folder / f"{name}.reports"
        self.process = subprocess.Popen(
            [tool, "chat", f"unix:{folder / 'socket'}", "--identity", folder / name, *options],
            stdin=subprocess.PIPE, stdout=self.output.open("wb"), stderr=self.reports.open("wb"),
            cwd=folder)

    def type(self, count):
        """Types the numbers 1 to `count`, each on a line, or fewer if the chat ends first."""
        try:
            for first in range(1, count + 1, 200):
                last = min(first + 200, count + 1)
                self.process.stdin.write(b"".join(b"%d\n" % number for number in range(first, last)))
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def written_numbers(self):
        """The numbers on the complete lines that the chat has written so far."""
        return [int(line) for line in self.output.read_bytes().split(b"\n")[:-1]]

    def numbers_with_fate(self, fate):
        """The numbers of the typed lines that the chat reports with this fate."""
        start = fate + b" "
        return [int(line.split()[1]) for line in self.reports.read_bytes().split(b"\n")[:-1]
                if line.startswith(start)]

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def wait(awaited, chat, condition):
    deadline = time.monotonic() + TIME_LIMIT
    while not condition():
        if time.monotonic() > deadline or chat.process.poll() is not None:
            raise AssertionError(f"{awaited} did not come: {chat.reports.read_text()[-2000:]}")
        time.sleep(0.002)


def fingerprint(tool, path):
    subprocess.run([tool, "keygen", path], check=True, capture_output=True)
    shown = subprocess.run([tool, "pubkey", path], check=True, capture_output=True, text=True)
    return next(word for word in shown.stdout.split() if word.startswith("SHA256:"))


def one_round(tool, line_count, generator):
    """Runs one round. Returns the lines reported as delivered, those of them that did not arrive, the
    number of lines whose fate is unknown, and the seconds that the leaver took to end."""
    with tempfile.TemporaryDirectory(prefix="blesec-") as name:
        folder = Path(name)
        keys = {who: fingerprint(tool, folder / who) for who in ("leaver", "writer")}
        leaver = Chat(tool, folder, "leaver", "--listen", "--peer", keys["writer"])
        writer = None
        try:
            wait("the listener", leaver, lambda: b"listening" in leaver.reports.read_bytes())
            writer = Chat(tool, folder, "writer", "--peer", keys["leaver"])
            typist = threading.Thread(target=writer.type, args=(line_count,), daemon=True)
            wait("the channel", writer, lambda: b"channel ready" in writer.reports.read_bytes())
            typist.start()
            # The leaver leaves after about `goal` lines, at five bytes a line.
            goal = generator.randrange(1, max(2, line_count // 4))
            wait("a line", leaver, lambda: leaver.output.stat().st_size >= goal * 5)
            # Without a delivered line, the round would show nothing.
            wait("the report of a delivered line", writer, lambda: writer.numbers_with_fate(b"delivered"))
            start_time = time.monotonic()
            leaver.process.stdin.close()
            status = leaver.process.wait(TIME_LIMIT)
            seconds = time.monotonic() - start_time
            # Gives the writer time to read what is left on the link.
            time.sleep(0.3)
            writer.process.kill()
            writer.process.wait()
            typist.join(TIME_LIMIT)
            arrived, delivered = leaver.written_numbers(), writer.numbers_with_fate(b"delivered")
            assert status == 0, f"the leaver ended with {status}: {leaver.reports.read_text()[-500:]}"
            assert arrived == list(range(1, len(arrived) + 1)), "lines are missing, repeated or out of order"
            assert len(set(delivered)) == len(delivered), "a line is reported as delivered twice"
            assert not writer.numbers_with_fate(b"received"), \
                "received is reported, although the leaver acknowledges only what it has written"
            return delivered, sorted(set(delivered) - set(arrived)), len(writer.numbers_with_fate(b"unknown")), seconds
        finally:
            leaver.end()
            if writer:
                writer.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=lambda path: Path(path).resolve(), default=ROOT / ".build/release/blesec")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("BLESEC_SEED", time.time_ns())))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    generator = random.Random(arguments.seed)
    passed = failed = total_delivered = 0
    for number in range(arguments.rounds):
        try:
            delivered, missing, unknown, seconds = one_round(arguments.tool, arguments.lines, generator)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"round {number}: {error}", flush=True)
            failed += 1
            continue
        total_delivered += len(delivered)
        print(f"round {number}: {len(delivered)} delivered, {len(missing)} of them missing, "
              f"{unknown} unknown; the leaver ended in {seconds:.2f} s", flush=True)
        passed, failed = passed + (not missing), failed + bool(missing)
    print(f"{total_delivered} lines reported as delivered")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed else 1


if __name__ == "__main__":
    sys.exit(main())
