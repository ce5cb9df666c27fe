#!/usr/bin/python3
"""cut.py: runs two tools with --persist. A proxy between them cuts the link at random bytes.

    Tests/Campaigns/cut.py [--tool PATH] [--bytes N] [--cuts N] [--kills N] [--seed N]

Each side sends N random bytes, in pieces of random lengths. The proxy cuts the link N times: three of ten
times within the first 2,000 bytes, that is in the handshake or in the records that resume the connection. With
--kills, the tools have stores, and read and write files, and each is killed N times and started again. Until both
tools have been killed N times, the proxy limits the rate of the second half of the bytes, so that no tool ends before
its last kill. The output of each side must equal the input of the other side, both exit statuses must be 0, and all
cuts and kills must have been made. Prints a line about the run, and ends with `N passed, N failed`.
"""

import argparse
import hashlib
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Proxy(threading.Thread):
    """Accepts links on the Unix socket `front`, connects each to the socket `back`, and cuts links: `cut_limit` in all.

    A link is cut after a random number of bytes, less than `allowance_limit`. `pace`, if given, returns how many bytes
    all links together may have carried by now.
    """

    def __init__(self, front, back, cut_limit, allowance_limit, generator, pace=None):
        super().__init__(daemon=True)
        self.pace = pace
        self.back, self.cut_limit, self.allowance_limit, self.generator = back, cut_limit, allowance_limit, generator
        self.cuts = self.carried = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(front)
        self.listener.listen(8)

    def run(self):
        while True:
            dialer, _ = self.listener.accept()
            acceptor = socket.socket(socket.AF_UNIX)
            try:
                acceptor.connect(self.back)
            except OSError:
                dialer.close()
                continue
            self.carry(dialer, acceptor)

    def allowance(self):
        """Returns after how many bytes the next link is cut, or None if it is not cut."""
        if self.cuts >= self.cut_limit:
            return None
        if self.generator.random() < 0.3:
            return self.generator.randrange(2_000)
        return self.generator.randrange(self.allowance_limit)

    def carry(self, dialer, acceptor):
        allowance = self.allowance()
        opposite = {dialer: acceptor, acceptor: dialer}
        with selectors.DefaultSelector() as selector, dialer, acceptor:
            for end in opposite:
                selector.register(end, selectors.EVENT_READ)
            if allowance == 0:
                self.cuts += 1
                return
            while opposite:
                if self.pace is not None and self.carried > self.pace():
                    time.sleep(0.005)
                    continue
                for key, _ in selector.select():
                    end = key.fileobj
                    if end not in opposite:
                        continue
                    try:
                        data = end.recv(65_536 if allowance is None else min(allowance, 65_536))
                        opposite[end].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    self.carried += len(data)
                    if allowance is not None:
                        allowance -= len(data)
                        if allowance == 0:
                            self.cuts += 1
                            return


class Side:
    """A tool that reads random bytes from standard input. Input and output are hashed."""

    def __init__(self, folder, name, arguments, count, seed):
        self.reports = folder / f"{name}.reports"
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.reports.open("wb"),
            cwd=folder)
        self.input_hash, self.output_hash = hashlib.sha256(), hashlib.sha256()
        self.output_length = 0
        self.kills_done = 0
        self.threads = [
            threading.Thread(target=self.write_input, args=(count, random.Random(seed)), daemon=True),
            threading.Thread(target=self.read_output, daemon=True)]
        for thread in self.threads:
            thread.start()

    def write_input(self, count, generator):
        try:
            while count > 0:
                length = min(count, generator.choice([1, 100, 5_000, 60_000]) + generator.randrange(99))
                piece = generator.randbytes(length)
                self.input_hash.update(piece)
                self.process.stdin.write(piece)
                self.process.stdin.flush()
                count -= length
            self.process.stdin.close()
        except OSError:
            pass

    def read_output(self):
        while piece := self.process.stdout.read1(65_536):
            self.output_hash.update(piece)
            self.output_length += len(piece)

    def wait(self, deadline):
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "late"
        for thread in self.threads:
            thread.join(10)
        return status


class StoredSide(threading.Thread):
    """A tool with a store, an input and an output, which is killed at random times and started again.

    If the tool has created no output file, its output counts as empty.
    """

    def __init__(self, folder, name, arguments, count, seed, kills, pause):
        super().__init__(daemon=True)
        self.reports = folder / f"{name}.reports"
        self.random = random.Random(seed)
        data = self.random.randbytes(count)
        (folder / f"{name}.input").write_bytes(data)
        self.input_hash, self.output = hashlib.sha256(data), folder / f"{name}.output"
        self.arguments = [
            *arguments, "--store", folder / f"{name}.store", "--input", folder / f"{name}.input",
            "--output", self.output]
        self.folder, self.kills, self.pause = folder, kills, pause
        self.kills_done = 0
        self.process, self.status = None, "late"
        self.start()

    def run(self):
        for kills_left in range(self.kills, -1, -1):
            with self.reports.open("ab") as reports:
                self.process = subprocess.Popen(
                    self.arguments, stdin=subprocess.DEVNULL, stdout=reports, stderr=reports, cwd=self.folder)
            try:
                self.status = self.process.wait(self.random.random() * self.pause if kills_left else None)
                return
            except subprocess.TimeoutExpired:
                self.process.kill()
            if (status := self.process.wait()) != -signal.SIGKILL:
                self.status = status  # the tool has ended by itself just before the kill
                return
            self.kills_done += 1

    def wait(self, deadline):
        self.join(max(0.1, deadline - time.monotonic()))
        if self.is_alive():
            self.process.kill()
            return "late"
        return self.status

    @property
    def output_hash(self):
        try:
            return hashlib.sha256(self.output.read_bytes())
        except FileNotFoundError:
            return hashlib.sha256()

    @property
    def output_length(self):
        try:
            return self.output.stat().st_size
        except FileNotFoundError:
            return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=ROOT / ".build/release/blesec", type=Path)
    parser.add_argument("--bytes", default=4 << 20, type=int)
    parser.add_argument("--cuts", default=30, type=int)
    parser.add_argument("--kills", default=0, type=int)
    parser.add_argument("--pause", default=8, type=float, help="the longest time from a start to the kill, in seconds")
    parser.add_argument("--seed", default=random.randrange(1 << 32), type=int)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    tool = options.tool.resolve()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        keys = []
        for name in ("listener", "dialer"):
            made = subprocess.run([tool, "keygen", folder / name], check=True, capture_output=True, text=True)
            keys.append(made.stdout.split()[-1])
        # The links that are cut or end with a kill together carry fewer bytes than both sides send: on average about a
        # third as many. So enough bytes are left for all cuts. With the least limit, 4,000, this is not certain.
        allowance_limit = max(4_000, 2 * options.bytes // max(1, options.cuts + 2 * options.kills))
        start_time = time.monotonic()
        sides = []

        def pace():
            """Returns how many bytes may have been carried by now: so few that the second half takes longer than all
            kills. After the last kill, there is no limit."""
            if len(sides) == 2 and all(side.kills_done == options.kills for side in sides):
                return sys.maxsize
            rate = options.bytes / (options.kills * (options.pause + 1))
            return options.bytes + rate * (time.monotonic() - start_time)

        proxy = Proxy(
            str(folder / "front"), str(folder / "back"), options.cuts, allowance_limit, generator,
            pace if options.kills else None)
        proxy.start()
        for name, command, end, key, seed in (
                ("listener", "listen", "back", keys[1], 2 * options.seed),
                ("dialer", "connect", "front", keys[0], 2 * options.seed + 1)):
            arguments = [tool, command, f"unix:{folder / end}", "--identity", folder / name,
                         "--peer", key, "--persist", "--idle", "5"]
            if options.kills:
                sides.append(StoredSide(
                    folder, name, arguments, options.bytes, seed, options.kills, options.pause))
            else:
                sides.append(Side(folder, name, arguments, options.bytes, seed))
        deadline = start_time + 120 + 4 * options.cuts + (options.pause + 10) * options.kills
        statuses = [side.wait(deadline) for side in sides]
        is_equal = [
            side.input_hash.digest() == sides[1 - index].output_hash.digest() for index, side in enumerate(sides)]
        kills = [side.kills_done for side in sides]
        good = (
            statuses == [0, 0] and all(is_equal) and proxy.cuts == options.cuts
            and kills == [options.kills, options.kills])
        print(
            f"seed {options.seed}: {options.bytes} bytes each way, {proxy.cuts} of {options.cuts} cuts, kills of the "
            f"two sides {kills} of {options.kills}, {proxy.carried} bytes carried, "
            f"{time.monotonic() - start_time:.0f} s, statuses {statuses}, equal {is_equal}", flush=True)
        if not good:
            for side in sides:
                print(f"wrote {side.output_length} bytes; last reports:\n{side.reports.read_text()[-2_000:]}")
    print(f"{int(good)} passed, {int(not good)} failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
