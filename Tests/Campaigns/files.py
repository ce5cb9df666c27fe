#!/usr/bin/python3
"""files.py: tests `blesec send` and `blesec receive` with cut links, killed processes and other failures.

    Tests/Campaigns/files.py [--tool PATH] [--bytes N] [--cuts N] [--kills N] [--tree N] [--seed N] [--only NAME]

Sends a file of N bytes, a mix of random bytes and holes, while a proxy cuts the link N times at random bytes and each
side is killed N times and started again. The file must arrive, all cuts and kills must have been made, and only bytes
that were in flight at a cut or a kill may be sent twice. Then it prints the rates of a tree of N files of 1 KiB and of
one file with as many bytes, over a Unix link and over a link with the rate and the delay of LE 2M; over the second
link, the tree must reach 0.8 of the file's rate. Then it tests other cases: a full disk, a folder that cannot be
written, a source that grows, shrinks or is replaced, a receiver that refuses, empty files, names that exist, a sender
or a receiver that is interrupted. Prints what failed, and ends with `N passed, N failed`.
"""

import argparse
import fcntl
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

LIMIT = 120  # the longest wait, in seconds
# About the rate of an L2CAP channel with LE 2M, in bytes a second (docs/radio-model.md), and the delay of a byte in
# seconds: two connection intervals of 15 ms.
RADIO_RATE, RADIO_DELAY = 163_000, 0.03


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_file(path, count, generator):
    """Writes a file of `count` bytes: parts of random length, each a hole or random bytes."""
    with open(path, "wb") as file:
        while (position := file.tell()) < count:
            length = min(count - position, generator.randrange(1, 1 << 22))
            if generator.random() < 0.5:
                file.write(generator.randbytes(length))
            else:
                file.seek(length, os.SEEK_CUR)
        file.truncate(count)


def make_tree(path, count, generator):
    """Makes a tree of `count` files of 1 KiB and an empty folder."""
    (path / "empty").mkdir(parents=True)
    for number in range(count):
        folder = path / f"part {number // 500}" / f"{number // 50 % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_bytes(generator.randbytes(1_024))


def same_tree(one, other):
    return not subprocess.run(["diff", "-r", one, other], capture_output=True).returncode


class Tools:
    """Starts `blesec send` and `blesec receive`, each with a key of its own."""

    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder
        self.keys = {}
        for name in ("receive", "send"):
            made = subprocess.run([tool, "keygen", folder / name], check=True, capture_output=True, text=True)
            self.keys[name] = made.stdout.split()[-1]
        self.count = 0

    def start(self, command, *arguments, wrapper=()):
        other = "send" if command == "receive" else "receive"
        self.count += 1
        reports = self.folder / f"{command}.{self.count}"
        process = subprocess.Popen(
            [*wrapper, self.tool, command, *arguments, "--identity", self.folder / command,
             "--peer", self.keys[other], "--idle", "5"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=reports.open("wb"), cwd=self.folder)
        process.reports = reports
        return process

    def start_receiver(self, folder, *arguments, wrapper=()):
        socket_path = f"{self.folder}/end{self.count}"
        process = self.start(
            "receive", f"unix:{socket_path}", folder, "--listen", "--accept", "always", *arguments, wrapper=wrapper)
        return process, socket_path


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
            # At most 8 pieces wait here for their time; further bytes wait in the sender's socket.
            pieces = queue.Queue(maxsize=8)
            threading.Thread(target=self.take, args=(source, pieces), daemon=True).start()
            threading.Thread(target=self.give, args=(target, pieces), daemon=True).start()

    @staticmethod
    def take(source, pieces):
        sent_time = time.monotonic()
        piece = True
        while piece:
            try:
                piece = source.recv(1_000)
            except OSError:
                piece = b""
            sent_time = max(sent_time, time.monotonic()) + len(piece) / RADIO_RATE
            time.sleep(max(0, sent_time - time.monotonic()))
            pieces.put((sent_time + RADIO_DELAY, piece))

    @staticmethod
    def give(target, pieces):
        piece = True
        while piece:
            due_time, piece = pieces.get()
            time.sleep(max(0, due_time - time.monotonic()))
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
    """The total size of the incomplete files in `folder`."""
    return sum(
        path.stat().st_size for path in folder.glob(".blesec-partial/*/*/**/*") if path.is_file())


def wait_until(condition, limit=LIMIT):
    """Waits until `condition` holds. Returns False if the time limit passes first."""
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
    """A tool that is killed and started again each time `progress()` reaches the next of `marks`."""

    def __init__(self, start_tool, progress, marks):
        super().__init__(daemon=True)
        self.start_tool, self.progress, self.marks = start_tool, progress, marks
        self.status, self.reports = "late", []
        self.kills_done = 0
        self.is_over = False
        self.start()

    def run(self):
        for mark in [*self.marks, None]:
            process = self.start_tool()
            self.reports.append(process.reports)
            while process.poll() is None and not self.is_over:
                if mark is not None and self.progress() >= mark:
                    process.kill()
                time.sleep(0.005)
            if self.is_over:
                process.kill()
            self.status = process.wait()
            if self.status != -signal.SIGKILL or self.is_over:
                return
            self.kills_done += 1

    def wait(self, deadline):
        self.join(max(0.1, deadline - time.monotonic()))
        if self.is_alive():
            self.is_over = True
            self.join(5)
            return "late"
        return self.status


def interrupted(tools, options, generator, check):
    """Sends a file while links are cut and both sides are killed."""
    folder = tools.folder
    source, target = folder / "source.bin", folder / "target"
    target.mkdir()
    make_file(source, options.bytes, generator)
    # Together, the links that are cut or end with a kill carry less than the whole file, on average about a third of
    # it. So enough bytes are left for all cuts.
    allowance_limit = max(20_000, options.bytes // max(1, options.cuts + 2 * options.kills))
    proxy = Proxy(str(folder / "front"), str(folder / "back"), options.cuts, allowance_limit,
                  random.Random(generator.randrange(1 << 32)))
    proxy.start()
    # Each tool is killed at three quarters of the file or before, so that it does not end before its last kill.
    marks = sorted(generator.randrange(options.bytes * 3 // 4) for _ in range(2 * options.kills))
    start_time = time.monotonic()

    def progress():
        try:
            return partial_bytes(target)
        except OSError:
            return 0

    receiver = KilledSide(
        lambda: tools.start("receive", f"unix:{folder}/back", target, "--listen", "--accept", "always"),
        progress, marks[0::2])
    sender = KilledSide(
        lambda: tools.start("send", f"unix:{folder}/front", source), progress, marks[1::2])
    deadline = start_time + 60 + options.bytes / 4e6 + 4 * options.cuts + 20 * options.kills
    statuses = [sender.wait(deadline), receiver.wait(deadline)]
    seconds = time.monotonic() - start_time
    arrived = target / "source.bin"
    is_equal = arrived.exists() and digest(arrived) == digest(source)
    # 2 % covers the overhead of records, about 21 bytes in 4 KiB, and the acknowledgements.
    resent = proxy.carried - options.bytes * 1.02
    kills = [sender.kills_done, receiver.kills_done]
    interruptions = proxy.cuts + sum(kills)
    print(
        f"seed {options.seed}: {options.bytes} bytes, {proxy.cuts} of {options.cuts} cuts, kills of sender and "
        f"receiver {kills} of {options.kills}, "
        f"{proxy.carried} bytes carried, {seconds:.0f} s, statuses {statuses}, equal {is_equal}", flush=True)
    check(statuses == [0, 0], f"statuses {statuses}: {reports(sender, receiver)}")
    check(proxy.cuts == options.cuts, f"{proxy.cuts} of {options.cuts} cuts")
    check(kills == [options.kills, options.kills], f"kills {kills} of {options.kills}")
    check(is_equal, "the received file differs")
    check(sorted(path.name for path in target.iterdir()) == ["source.bin"], f"there is {list(target.iterdir())}")
    # Each interruption may lose 3 MB: the stream's window, and the bytes that are being written to disk.
    check(resent <= 3e6 * interruptions + 1e5, f"{resent:.0f} bytes were sent again")


def reports(*sides):
    return "\n".join(
        path.read_text()[-800:] for side in sides
        for path in (side.reports if isinstance(side.reports, list) else [side.reports])[-2:])


def transfer(tools, source, target, *receiver_options, wrapper=(), sender_options=(), is_radio=False):
    """Sends a file or folder. Returns both exit statuses, the sender's and the receiver's reports, and the seconds.

    `receiver_options` and `sender_options` are further arguments of `blesec receive` and `blesec send`. `wrapper` is a
    command that runs the receiver: the receiver's command line follows it.
    """
    receiver, socket_path = tools.start_receiver(target, *receiver_options, wrapper=wrapper)
    wait_until(lambda: "listening" in receiver.reports.read_text())
    if is_radio:
        RadioLink(f"{socket_path}.radio", socket_path)
        socket_path += ".radio"
    start_time = time.monotonic()
    sender = tools.start("send", f"unix:{socket_path}", source, *sender_options)
    statuses = wait(sender), wait(receiver)
    seconds = time.monotonic() - start_time
    return statuses, sender.reports.read_text(), receiver.reports.read_text(), seconds


def tree(tools, options, generator, check):
    """Sends many small files, and one file with as many bytes, and compares the rates."""
    folder = tools.folder
    make_tree(folder / "tree", options.tree, generator)
    (folder / "one.bin").write_bytes(generator.randbytes(options.tree * 1_024))
    target = folder / "trees"
    target.mkdir()
    for link, is_radio in (("a Unix link", False), ("a link with the rate of LE 2M", True)):
        rates = []
        for name in ("one.bin", "tree"):
            least_seconds = None
            for _ in range(1 if is_radio else 3):
                subprocess.run(["rm", "-rf", target / name], check=True)
                statuses, sender_log, receiver_log, seconds = transfer(
                    tools, folder / name, target, is_radio=is_radio)
                check(statuses == (0, 0), f"{name}: {statuses} {sender_log} {receiver_log}")
                least_seconds = min(least_seconds or seconds, seconds)
            rates.append(options.tree * 1_024 / least_seconds)
        ratio = rates[1] / rates[0]
        print(
            f"{options.tree} files of 1 KiB over {link}: {rates[1] / 1e6:.3f} MB/s, one file "
            f"{rates[0] / 1e6:.3f} MB/s, ratio {ratio:.2f}", flush=True)
        check(not is_radio or ratio >= 0.8, f"the tree has {ratio:.2f} of the file's rate")
    check(digest(folder / "one.bin") == digest(target / "one.bin"), "the received file differs")
    check(same_tree(folder / "tree", target / "tree"), "the received tree differs")


def cases(tools, options, generator, check):
    folder = tools.folder
    source = folder / "some.bin"
    source.write_bytes(generator.randbytes(40_000_000))
    empty = folder / "empty"
    empty.write_bytes(b"")
    empty.chmod(0o755)
    os.utime(empty, ns=(1_600_000_000_123_456_789,) * 2)

    target = folder / "empties"
    target.mkdir()
    statuses, sender_log, _, _ = transfer(tools, empty, target)
    file_status = (target / "empty").stat()
    check(statuses == (0, 0) and file_status.st_size == 0, f"an empty file: {statuses} {sender_log}")
    check(file_status.st_mode & 0o100, "the executable bit is lost")
    check(file_status.st_mtime_ns == empty.stat().st_mtime_ns, "the modification time is lost")
    statuses, sender_log, _, _ = transfer(tools, empty, target)
    check(statuses == (0, 0) and "as empty (2)" in sender_log, f"a name that exists: {sender_log}")
    (target / "empty").write_bytes(b"old")
    statuses, sender_log, _, _ = transfer(tools, empty, target, "--overwrite")
    check((target / "empty").stat().st_size == 0, f"--overwrite: {sender_log}")

    # A receiver that refuses.
    socket_path = f"{folder}/refusing"
    receiver = tools.start("receive", f"unix:{socket_path}", target, "--listen", "--accept", "1K")
    wait_until(lambda: "listening" in receiver.reports.read_text())
    sender = tools.start("send", f"unix:{socket_path}", source)
    statuses = wait(sender), wait(receiver)
    check(statuses == (69, 0), f"refused: {statuses} {sender.reports.read_text()}")
    check("larger than 1.0 KiB" in sender.reports.read_text(), "the reason of a refusal is lost")
    check(not (target / "some.bin").exists(), "a refused file is there")

    # A disk with too little space: the receiver refuses the offer. Then a disk with enough space.
    disk = folder / "disk"
    disk.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    for size, expected in ((24, (73, 73)), (64, (0, 0))):
        script = f"mount -t tmpfs -o size={size}m tmpfs '{disk}' && exec \"$@\""
        statuses, sender_log, receiver_log, _ = transfer(tools, source, disk, wrapper=[*mount, script, "sh"])
        check(statuses == expected, f"a disk of {size} MiB: {statuses} {sender_log} {receiver_log}")
        check("too little space" in sender_log or size > 40, f"a disk of {size} MiB: {sender_log}")
    script = f"mount -t tmpfs -o ro,size=64m tmpfs '{disk}' && exec \"$@\""
    receiver, socket_path = tools.start_receiver(disk, wrapper=[*mount, script, "sh"])
    check(wait(receiver) == 73, f"a folder that cannot be written: {receiver.reports.read_text()}")

    # A limit of the file size (RLIMIT_FSIZE) stops the receiver in the middle of the file. The next transfer has no
    # limit, and continues from there.
    limited = folder / "limited"
    limited.mkdir()
    statuses, sender_log, receiver_log, _ = transfer(
        tools, source, limited, wrapper=["prlimit", "--fsize=20000000", "env", "--ignore-signal=XFSZ"])
    check(statuses == (73, 73), f"a file that is too large midway: {statuses} {sender_log} {receiver_log}")
    check(not (limited / "some.bin").exists(), "an incomplete file has its final name")
    check(partial_bytes(limited) > 10_000_000, "the bytes that had arrived are gone")
    statuses, sender_log, receiver_log, _ = transfer(tools, source, limited)
    is_equal = digest(limited / "some.bin") == digest(source)
    check(statuses == (0, 0) and is_equal, f"a file continued without the limit: {sender_log} {receiver_log}")

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
        # If the whole file was sent before it changed, the attempt shows nothing, and is repeated.
        for attempt in range(5):
            target = folder / f"changing {name} {attempt}"
            target.mkdir()
            changing = folder / "changing.bin"
            changing.write_bytes(source.read_bytes())
            receiver, socket_path = tools.start_receiver(target)
            wait_until(lambda: "listening" in receiver.reports.read_text())
            sender = tools.start("send", f"unix:{socket_path}", changing)
            check(wait_until(lambda: partial_bytes(target) > 500_000), f"{name}: nothing arrives")
            receiver.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            arrived_bytes = partial_bytes(target)
            change(changing)
            receiver.send_signal(signal.SIGCONT)
            statuses = wait(sender), wait(receiver)
            sender_log = sender.reports.read_text()
            if arrived_bytes <= 30_000_000 or statuses != (0, 0):
                break
        check(
            statuses[0] == 65 and ("changed" in sender_log or "shorter" in sender_log),
            f"{name}: {statuses} {sender_log}")
        check(not list(target.glob("changing*")), f"{name}: an incomplete file is there")

    # An interrupt (SIGINT) of either side, and then a whole transfer.
    for command in ("send", "receive"):
        target = folder / f"interrupted {command}"
        target.mkdir()
        receiver, socket_path = tools.start_receiver(target)
        wait_until(lambda: "listening" in receiver.reports.read_text())
        sender = tools.start("send", f"unix:{socket_path}", source)
        check(wait_until(lambda: partial_bytes(target) > 500_000), f"interrupt {command}: nothing arrives")
        (sender if command == "send" else receiver).send_signal(signal.SIGINT)
        statuses = wait(sender), wait(receiver)
        sender_log, receiver_log = sender.reports.read_text(), receiver.reports.read_text()
        peer_log = receiver_log if command == "send" else sender_log
        expected = (130, 76) if command == "send" else (76, 130)
        check(statuses == expected, f"interrupt {command}: {statuses} {sender_log} {receiver_log}")
        check("the peer has ended the transfer" in peer_log, f"interrupt {command}: {peer_log}")
        arrived_bytes = partial_bytes(target)
        check(arrived_bytes > 0, f"interrupt {command}: the bytes that had arrived are gone")
        statuses, sender_log, receiver_log, _ = transfer(tools, source, target)
        check(statuses == (0, 0), f"after the interrupt of {command}: {statuses} {sender_log} {receiver_log}")
        check(digest(target / "some.bin") == digest(source), "the received file differs")
        check([path.name for path in target.iterdir()] == ["some.bin"], "something is left")

    def kill_midway(target):
        """Kills both sides of a transfer, and returns the path of the incomplete file."""
        target.mkdir()
        receiver, socket_path = tools.start_receiver(target)
        wait_until(lambda: "listening" in receiver.reports.read_text())
        sender = tools.start("send", f"unix:{socket_path}", source)
        wait_until(lambda: partial_bytes(target) > 2_000_000)
        for process in (receiver, sender):
            process.kill()
            process.wait()
        partial, = target.glob(".blesec-partial/*/*/f-*")
        return partial

    # This script holds the lock of the incomplete file's folder, as another transfer of the same file would, and the
    # receiver refuses the offer. Later the lock is free, the sender offers the file again, and both sides succeed.
    target = folder / "active"
    lock = os.open(kill_midway(target).parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    receiver, socket_path = tools.start_receiver(target)
    wait_until(lambda: "listening" in receiver.reports.read_text())
    sender = tools.start("send", f"unix:{socket_path}", source)
    check(wait_until(lambda: "being received already" in receiver.reports.read_text()), "an offer is accepted twice")
    os.close(lock)
    statuses = wait(sender), wait(receiver)
    is_equal = digest(target / "some.bin") == digest(source)
    check(
        statuses == (0, 0) and is_equal,
        f"an offer after another: {statuses} {sender.reports.read_text()} {receiver.reports.read_text()}")

    # The receiver's incomplete file has bytes that the source does not have.
    target = folder / "wrong"
    partial = kill_midway(target)
    with open(partial, "r+b") as file:
        file.seek(100_000)
        file.write(b"wrong")
    statuses, sender_log, receiver_log, _ = transfer(tools, source, target)
    is_equal = digest(target / "some.bin") == digest(source)
    check(statuses == (0, 0) and is_equal, f"a wrong part: {sender_log} {receiver_log}")


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

    def check(is_good, what):
        nonlocal passed
        if is_good:
            passed += 1
        else:
            failures.append(what)
            print(f"FAILED: {what}", flush=True)

    with tempfile.TemporaryDirectory() as path:
        tools = Tools(options.tool.resolve(), Path(path))
        for part in (interrupted, tree, cases):
            if options.only in (None, part.__name__):
                part(tools, options, generator, check)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
