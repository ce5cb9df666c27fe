#!/usr/bin/python3
"""files.py: `blesec send` and `blesec receive`, with a proxy that cuts the link, kills, and bad luck.

    Tests/Campaigns/files.py [--tool PATH] [--bytes N] [--cuts N] [--kills N] [--tree N] [--seed N] [--only NAME]

Sends a file of N bytes, sparse and random parts in turns, while the proxy cuts the link N times at random bytes and
each side is killed N times and started again. The file must arrive, and nothing may be sent twice but what was under
way. Then a tree of N files of 1 KiB beside one file of as many bytes: over the link itself, and over one with the
rate and the delay of LE 2M, where the tree must reach 0.8 of the file's rate. Then the cases of the page: a full disk, a
folder that cannot be written, a source that grows, shrinks or is replaced, a receiver that refuses, empty files,
names that exist, a sender that is interrupted. Prints what failed, and ends with `N passed, N failed`.
"""

import argparse
import hashlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from cut import ROOT, Proxy

LIMIT = 120
# About what an L2CAP channel with LE 2M carries, in bytes a second (docs/radio-model.md), and the seconds until the other
# side has a byte: two connection intervals of 15 ms.
RADIO_RATE, RADIO_DELAY = 163_000, 0.03


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_file(path, count, generator):
    """Writes parts of random bytes and holes in turns."""
    with open(path, "wb") as file:
        while (place := file.tell()) < count:
            length = min(count - place, generator.randrange(1, 1 << 22))
            if generator.random() < 0.5:
                file.write(generator.randbytes(length))
            else:
                file.seek(length, os.SEEK_CUR)
        file.truncate(count)


def make_tree(path, count, generator):
    """A tree of files of 1 KiB, with an empty folder."""
    (path / "empty").mkdir(parents=True)
    for number in range(count):
        folder = path / f"part {number // 500}" / f"{number // 50 % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_bytes(generator.randbytes(1_024))


def same_tree(one, other):
    return not subprocess.run(["diff", "-r", one, other], capture_output=True).returncode


class Tools:
    """The keys of two sides, and their commands."""

    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder
        self.keys = {}
        for name in ("receive", "send"):
            made = subprocess.run([tool, "keygen", folder / name], check=True, capture_output=True, text=True)
            self.keys[name] = made.stdout.split()[-1]
        self.count = 0

    def start(self, command, *arguments, before=(), group=None):
        other = "send" if command == "receive" else "receive"
        self.count += 1
        reports = self.folder / f"{command}.{self.count}"
        process = subprocess.Popen(
            [*before, self.tool, command, *arguments, "--identity", self.folder / command,
             "--peer", self.keys[other], "--idle", "5"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=reports.open("wb"), cwd=self.folder,
            start_new_session=group is not None)
        process.reports = reports
        return process

    def receiver(self, folder, *arguments, before=()):
        end = f"{self.folder}/end{self.count}"
        process = self.start(
            "receive", f"unix:{end}", folder, "--listen", "--accept", "always", *arguments, before=before)
        return process, end


class RadioLink:
    """Carries one link between two Unix sockets at the rate and with the delay of LE 2M."""

    def __init__(self, front, back):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(front)
        self.listener.listen(1)
        threading.Thread(target=self.run, args=(back,), daemon=True).start()

    def run(self, back):
        with self.listener:
            dialer, _ = self.listener.accept()
        acceptor = socket.socket(socket.AF_UNIX)
        acceptor.connect(back)
        for source, target in ((dialer, acceptor), (acceptor, dialer)):
            # As many pieces as are under way at once: further bytes wait in the sender's socket.
            pieces = queue.Queue(maxsize=8)
            threading.Thread(target=self.take, args=(source, pieces), daemon=True).start()
            threading.Thread(target=self.give, args=(target, pieces), daemon=True).start()

    @staticmethod
    def take(source, pieces):
        sent = time.monotonic()
        piece = True
        while piece:
            try:
                piece = source.recv(1_000)
            except OSError:
                piece = b""
            sent = max(sent, time.monotonic()) + len(piece) / RADIO_RATE
            time.sleep(max(0, sent - time.monotonic()))
            pieces.put((sent + RADIO_DELAY, piece))

    @staticmethod
    def give(target, pieces):
        piece = True
        while piece:
            due, piece = pieces.get()
            time.sleep(max(0, due - time.monotonic()))
            try:
                if piece:
                    target.sendall(piece)
                else:
                    target.shutdown(socket.SHUT_WR)
            except OSError:
                pass


def wait(process, limit=LIMIT):
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "late"


def partial_bytes(folder):
    """The bytes of incomplete files."""
    return sum(
        path.stat().st_size for path in folder.glob(".blesec-partial/*/*/**/*") if path.is_file())


def until(condition, limit=LIMIT):
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            if condition():
                return True
        except OSError:
            pass
        time.sleep(0.005)
    return False


class KilledSide(threading.Thread):
    """A tool that is killed when the transfer has reached certain bytes, and started again."""

    def __init__(self, start, reached, marks):
        super().__init__(daemon=True)
        self.begin, self.reached, self.marks = start, reached, marks
        self.status, self.reports = "late", []
        self.isOver = False
        self.start()

    def run(self):
        for mark in [*self.marks, None]:
            process = self.begin()
            self.reports.append(process.reports)
            while process.poll() is None and not self.isOver:
                if mark is not None and self.reached() >= mark:
                    process.kill()
                time.sleep(0.005)
            if self.isOver:
                process.kill()
            self.status = process.wait()
            if self.status != -signal.SIGKILL:
                return

    def wait(self, deadline):
        self.join(max(0.1, deadline - time.monotonic()))
        if self.is_alive():
            self.isOver = True
            self.join(5)
            return "late"
        return self.status


def interrupted(tools, options, generator, check):
    """A file, with cuts and kills."""
    folder = tools.folder
    source, target = folder / "source.bin", folder / "target"
    target.mkdir()
    make_file(source, options.bytes, generator)
    spread = max(20_000, 2 * options.bytes // max(1, options.cuts))
    proxy = Proxy(str(folder / "front"), str(folder / "back"), options.cuts, spread, generator)
    proxy.start()
    marks = sorted(generator.randrange(options.bytes) for _ in range(2 * options.kills))
    begun = time.monotonic()

    def reached():
        try:
            return partial_bytes(target)
        except OSError:
            return 0

    receiver = KilledSide(
        lambda: tools.start("receive", f"unix:{folder}/back", target, "--listen", "--accept", "always"),
        reached, marks[0::2])
    sender = KilledSide(
        lambda: tools.start("send", f"unix:{folder}/front", source), reached, marks[1::2])
    deadline = begun + 60 + options.bytes / 4e6 + 4 * options.cuts + 20 * options.kills
    statuses = [sender.wait(deadline), receiver.wait(deadline)]
    seconds = time.monotonic() - begun
    arrived = target / "source.bin"
    isEqual = arrived.exists() and digest(arrived) == digest(source)
    # 21 bytes for a record's overhead in 4 KiB at least, and acknowledgements.
    again = proxy.carried - options.bytes * 1.02
    interruptions = proxy.cuts + 2 * options.kills
    print(
        f"seed {options.seed}: {options.bytes} bytes, {proxy.cuts} cuts, {options.kills} kills of each side, "
        f"{proxy.carried} bytes carried, {seconds:.0f} s, statuses {statuses}, equal {isEqual}", flush=True)
    check(statuses == [0, 0], f"statuses {statuses}: {reports(sender, receiver)}")
    check(isEqual, "the file is another one")
    check(sorted(path.name for path in target.iterdir()) == ["source.bin"], f"there is {list(target.iterdir())}")
    # What is under way when a link or a process is lost: the stream's window, and what is being written.
    check(again <= 3e6 * interruptions + 1e5, f"{again:.0f} bytes were sent again")


def reports(*sides):
    return "\n".join(
        path.read_text()[-800:] for side in sides
        for path in (side.reports if isinstance(side.reports, list) else [side.reports])[-2:])


def transfer(tools, source, target, *receiving, before=(), sending=(), isRadio=False):
    """Sends a file, and returns both exit statuses, both reports and the time."""
    receiver, end = tools.receiver(target, *receiving, before=before)
    until(lambda: "listening" in receiver.reports.read_text())
    if isRadio:
        RadioLink(f"{end}.radio", end)
        end += ".radio"
    begun = time.monotonic()
    sender = tools.start("send", f"unix:{end}", source, *sending)
    statuses = wait(sender), wait(receiver)
    seconds = time.monotonic() - begun
    return statuses, sender.reports.read_text(), receiver.reports.read_text(), seconds


def tree(tools, options, generator, check):
    """Many small files beside one of as many bytes."""
    folder = tools.folder
    make_tree(folder / "tree", options.tree, generator)
    (folder / "one.bin").write_bytes(generator.randbytes(options.tree * 1_024))
    target = folder / "trees"
    target.mkdir()
    for link, isRadio in (("a Unix link", False), ("a link with the rate of LE 2M", True)):
        rates = []
        for name in ("one.bin", "tree"):
            best = None
            for _ in range(1 if isRadio else 3):
                subprocess.run(["rm", "-rf", target / name], check=True)
                statuses, said, heard, seconds = transfer(tools, folder / name, target, isRadio=isRadio)
                check(statuses == (0, 0), f"{name}: {statuses} {said} {heard}")
                best = min(best or seconds, seconds)
            rates.append(options.tree * 1_024 / best)
        ratio = rates[1] / rates[0]
        print(
            f"{options.tree} files of 1 KiB over {link}: {rates[1] / 1e6:.3f} MB/s, one file "
            f"{rates[0] / 1e6:.3f} MB/s, {ratio:.2f}", flush=True)
        check(not isRadio or ratio >= 0.8, f"the tree has {ratio:.2f} of the file's rate")
    check(digest(folder / "one.bin") == digest(target / "one.bin"), "the file is another one")
    check(same_tree(folder / "tree", target / "tree"), "the tree is another one")


def cases(tools, options, generator, check):
    folder = tools.folder
    source = folder / "some.bin"
    source.write_bytes(generator.randbytes(40_000_000))
    small = folder / "empty"
    small.write_bytes(b"")
    small.chmod(0o755)
    os.utime(small, ns=(1_600_000_000_123_456_789,) * 2)

    target = folder / "empties"
    target.mkdir()
    statuses, said, _, _ = transfer(tools, small, target)
    status = (target / "empty").stat()
    check(statuses == (0, 0) and status.st_size == 0, f"an empty file: {statuses} {said}")
    check(status.st_mode & 0o100, "the executable bit is lost")
    check(status.st_mtime_ns == small.stat().st_mtime_ns, "the time is lost")
    statuses, said, _, _ = transfer(tools, small, target)
    check(statuses == (0, 0) and "as empty (2)" in said, f"a name that exists: {said}")
    (target / "empty").write_bytes(b"old")
    statuses, said, _, _ = transfer(tools, small, target, "--overwrite")
    check((target / "empty").stat().st_size == 0, f"--overwrite: {said}")

    # A receiver that refuses.
    end = f"{folder}/refusing"
    receiver = tools.start("receive", f"unix:{end}", target, "--listen", "--accept", "1K")
    until(lambda: "listening" in receiver.reports.read_text())
    sender = tools.start("send", f"unix:{end}", source)
    statuses = wait(sender), wait(receiver)
    check(statuses == (69, 0), f"refused: {statuses} {sender.reports.read_text()}")
    check("larger than 1.0 KiB" in sender.reports.read_text(), "the reason of a refusal is lost")
    check(not (target / "some.bin").exists(), "a refused file is there")

    # A full disk: refused at the offer.
    disk = folder / "disk"
    disk.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    for size, expected in ((24, (73, 73)), (64, (0, 0))):
        script = f"mount -t tmpfs -o size={size}m tmpfs '{disk}' && exec \"$@\""
        statuses, said, heard, _ = transfer(tools, source, disk, before=[*mount, script, "sh"])
        check(statuses == expected, f"a disk of {size} MiB: {statuses} {said} {heard}")
        check("too little space" in said or size > 40, f"a disk of {size} MiB: {said}")
    script = f"mount -t tmpfs -o ro,size=64m tmpfs '{disk}' && exec \"$@\""
    receiver, end = tools.receiver(disk, before=[*mount, script, "sh"])
    check(wait(receiver) == 73, f"a folder that cannot be written: {receiver.reports.read_text()}")

    # No more room in the middle, and then there is room again.
    limited = folder / "limited"
    limited.mkdir()
    statuses, said, heard, _ = transfer(
        tools, source, limited, before=["prlimit", "--fsize=20000000", "env", "--ignore-signal=XFSZ"])
    check(statuses == (73, 73), f"a file that is too large midway: {statuses} {said} {heard}")
    check(not (limited / "some.bin").exists(), "a half of a file has its final name")
    check(partial_bytes(limited) > 10_000_000, "what had arrived is gone")
    statuses, said, heard, _ = transfer(tools, source, limited)
    check(statuses == (0, 0) and digest(limited / "some.bin") == digest(source), f"afterwards: {said} {heard}")

    # A source that changes midway.
    def grow(path):
        with open(path, "ab") as file:
            file.write(b"more")

    def replace(path):
        other = folder / "other"
        other.write_bytes(path.read_bytes())
        os.rename(other, path)

    def rewrite(path):
        with open(path, "r+b") as file:
            file.seek(39_000_000)
            file.write(b"other")

    for name, change in (("grows", grow), ("shrinks", lambda path: os.truncate(path, 12_345_678)),
                         ("is replaced", replace), ("is rewritten", rewrite), ("is removed", os.unlink)):
        target = folder / f"changing {name}"
        target.mkdir()
        changing = folder / "changing.bin"
        changing.write_bytes(source.read_bytes())
        receiver, end = tools.receiver(target)
        until(lambda: "listening" in receiver.reports.read_text())
        sender = tools.start("send", f"unix:{end}", changing)
        check(until(lambda: partial_bytes(target) > 500_000), f"{name}: nothing arrives")
        receiver.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        held = partial_bytes(target)
        change(changing)
        receiver.send_signal(signal.SIGCONT)
        statuses = wait(sender), wait(receiver)
        said = sender.reports.read_text()
        if held > 30_000_000 and statuses == (0, 0):
            continue  # It was sent before it changed.
        check(statuses[0] == 65 and "changed" in said or "shorter" in said, f"{name}: {statuses} {said}")
        check(not list(target.glob("changing*")), f"{name}: half of a file is there")

    # Ctrl-C at either side, and again.
    for command in ("send", "receive"):
        target = folder / f"interrupted {command}"
        target.mkdir()
        receiver, end = tools.receiver(target)
        until(lambda: "listening" in receiver.reports.read_text())
        sender = tools.start("send", f"unix:{end}", source)
        check(until(lambda: partial_bytes(target) > 500_000), f"interrupt {command}: nothing arrives")
        (sender if command == "send" else receiver).send_signal(signal.SIGINT)
        statuses = wait(sender), wait(receiver)
        said, heard = sender.reports.read_text(), receiver.reports.read_text()
        mine, others = (said, heard) if command == "send" else (heard, said)
        check(130 in statuses and 0 not in statuses, f"interrupt {command}: {statuses} {said} {heard}")
        check("the peer has ended the transfer" in others, f"interrupt {command}: {others}")
        held = partial_bytes(target)
        check(held > 0, f"interrupt {command}: what had arrived is gone")
        statuses, said, heard, _ = transfer(tools, source, target)
        check(statuses == (0, 0), f"after the interrupt of {command}: {statuses} {said} {heard}")
        check(digest(target / "some.bin") == digest(source), "the file is another one")
        check([path.name for path in target.iterdir()] == ["some.bin"], "something is left")

    # What is held and is not what the sender has.
    target = folder / "wrong"
    target.mkdir()
    receiver, end = tools.receiver(target)
    until(lambda: "listening" in receiver.reports.read_text())
    sender = tools.start("send", f"unix:{end}", source)
    until(lambda: partial_bytes(target) > 2_000_000)
    for process in (receiver, sender):
        process.kill()
        process.wait()
    partial, = (path for path in target.glob(".blesec-partial/*/*/f-*"))
    with open(partial, "r+b") as file:
        file.seek(100_000)
        file.write(b"wrong")
    statuses, said, heard, _ = transfer(tools, source, target)
    check(statuses == (0, 0) and digest(target / "some.bin") == digest(source), f"a wrong part: {said} {heard}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=ROOT / ".build/release/blesec", type=Path)
    parser.add_argument("--bytes", default=64 << 20, type=int)
    parser.add_argument("--cuts", default=12, type=int)
    parser.add_argument("--kills", default=2, type=int)
    parser.add_argument("--tree", default=2_000, type=int)
    parser.add_argument("--seed", default=random.randrange(1 << 32), type=int)
    parser.add_argument("--only", choices=["interrupted", "tree", "cases"])
    options = parser.parse_args()
    generator = random.Random(options.seed)
    passed, failures = 0, []

    def check(isGood, what):
        nonlocal passed
        if isGood:
            passed += 1
        else:
            failures.append(what)
            print(f"FAILED: {what}", flush=True)

    with tempfile.TemporaryDirectory() as place:
        tools = Tools(options.tool.resolve(), Path(place))
        for part in (interrupted, tree, cases):
            if options.only in (None, part.__name__):
                part(tools, options, generator, check)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
