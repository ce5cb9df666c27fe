#!/usr/bin/python3
"""forward.py: `blesec forward` between two tools, with a proxy that cuts the link at random bytes.

    Tests/Campaigns/forward.py [--tool PATH] [--connections N] [--cuts N] [--seed N]

N connections, half of them over TCP and half over a Unix socket, and several at a time, send random bytes to a
program that echoes them. Each connection shuts down its sending direction after its last byte; some send more
than a stream's window. Each byte must come back once and in order, and then the end. A TCP connection must be
reset if its target is not allowed, if nothing listens at its target, or if the peer is killed. No cut may be
missing. Prints what failed, and ends with `N passed, N failed`.
"""

import argparse
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

LIMIT = 300  # the longest wait, in seconds


def listening(family, address):
    server = socket.socket(family)
    server.bind(address)
    server.listen(128)
    return server


def serve(server):
    """Echoes the bytes of each connection, on a thread of its own."""

    def echo(end):
        with end:
            try:
                while piece := end.recv(65_536):
                    end.sendall(piece)
                end.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    while True:
        end, _ = server.accept()
        threading.Thread(target=echo, args=(end,), daemon=True).start()


def converse(family, address, sent):
    """Sends all of `sent`, and returns the bytes that come back up to the end."""
    with socket.socket(family) as end:
        end.settimeout(LIMIT)
        end.connect(address)

        # The kernel reports a reset only once, to one of the two threads.
        errors = []

        def send():
            try:
                end.sendall(sent)
                end.shutdown(socket.SHUT_WR)
            except OSError as error:
                errors.append(error)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        pieces = []
        while piece := end.recv(65_536):
            pieces.append(piece)
        sender.join(LIMIT)
        if errors:
            raise ConnectionResetError from errors[0]
        return b"".join(pieces)


class Tool:
    def __init__(self, folder, name, arguments):
        self.reports = folder / f"{name}.reports"
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.reports.open("ab"))

    def has_said(self, text):
        """Waits until the tool has reported `text`. Returns False if the time limit passes first."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if text in self.reports.read_text():
                return True
            time.sleep(0.02)
        return False

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "late"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=ROOT / ".build/release/blesec", type=Path)
    parser.add_argument("--connections", default=60, type=int)
    parser.add_argument("--cuts", default=15, type=int)
    parser.add_argument("--seed", default=random.randrange(1 << 32), type=int)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    tool = options.tool.resolve()
    passed, failures = 0, []

    def check(is_good, what):
        nonlocal passed
        if is_good:
            passed += 1
        else:
            failures.append(what)
            print(f"seed {options.seed}: {what}", flush=True)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        keys = []
        for name in ("near", "far"):
            made = subprocess.run([tool, "keygen", folder / name], check=True, capture_output=True, text=True)
            keys.append(made.stdout.split()[-1])
        tcp = listening(socket.AF_INET, ("127.0.0.1", 0))
        unix = listening(socket.AF_UNIX, str(folder / "target"))
        for server in (tcp, unix):
            threading.Thread(target=serve, args=(server,), daemon=True).start()
        # Three ports that are free once these sockets are closed. Nothing will listen at `closed`.
        with listening(socket.AF_INET, ("127.0.0.1", 0)) as first, \
                listening(socket.AF_INET, ("127.0.0.1", 0)) as second, \
                listening(socket.AF_INET, ("127.0.0.1", 0)) as third:
            local, closed, other_local = [end.getsockname()[1] for end in (first, second, third)]
        target = tcp.getsockname()[1]
        proxy = Proxy(str(folder / "front"), str(folder / "back"), options.cuts, 400_000, generator)
        proxy.start()

        def far(name="far"):
            return Tool(folder, name, [
                tool, "forward", "--allow", f"tcp:127.0.0.1:{target}", "--allow", f"unix:{folder / 'target'}",
                "--allow", f"tcp:127.0.0.1:{closed}", "--at", f"unix:{folder / 'back'}", "--listen",
                "--identity", folder / "far", "--peer", keys[0], "--idle", "5"])

        def near(name, here, there):
            return Tool(folder, name, [
                tool, "forward", here, there, "--at", f"unix:{folder / 'front'}",
                "--identity", folder / "near", "--peer", keys[1], "--idle", "5"])

        server = far()
        check(server.has_said("listening on"), "the far side does not listen")
        for family, here, there, address in (
                (socket.AF_INET, f"tcp:127.0.0.1:{local}", f"unix:{folder / 'target'}", ("127.0.0.1", local)),
                (socket.AF_UNIX, f"unix:{folder / 'local'}", f"tcp:127.0.0.1:{target}", str(folder / "local"))):
            client = near(f"near-{family.name}", here, there)
            check(client.has_said("channel ready"), f"{family.name}: no channel")

            def exchange(number, seed):
                length = random.Random(seed).choice([0, 1, 3_000, 70_000, 400_000])
                sent = random.Random(seed).randbytes(length)
                try:
                    results[number] = converse(family, address, sent) == sent
                except OSError as error:
                    results[number] = error

            count = options.connections // 2
            results = [None] * count
            threads = []
            for number in range(count):
                threads.append(threading.Thread(
                    target=exchange, args=(number, generator.randrange(1 << 32)), daemon=True))
                threads[-1].start()
                time.sleep(generator.random() * 0.05)
            for thread in threads:
                thread.join(LIMIT)
            for number, result in enumerate(results):
                check(result is True, f"{family.name}: connection {number}: {result}")
            # The far process is killed and started again. The streams of the old process are lost.
            if family == socket.AF_INET:
                with socket.socket() as end:
                    end.settimeout(LIMIT)
                    end.connect(address)
                    end.sendall(b"before")
                    check(end.recv(6) == b"before", "nothing came back before the kill")
                    server.process.kill()
                    server.process.wait()
                    server = far("far-again")
                    try:
                        piece = end.recv(1)
                        check(False, f"a lost connection returns {piece}")
                    except ConnectionResetError:
                        check(True, "")
                check(converse(family, address, b"after") == b"after", "nothing is carried after the kill")
            status = client.end()
            check(status == 130, f"{family.name}: the status is {status}")
        for name, there, reason in (
                ("refused", f"tcp:127.0.0.1:{target + 1}", "does not allow"),
                ("closed", f"tcp:127.0.0.1:{closed}", "cannot reach")):
            client = near(name, f"tcp:127.0.0.1:{other_local}", there)
            check(client.has_said("channel ready"), f"{name}: no channel")
            try:
                piece = converse(socket.AF_INET, ("127.0.0.1", other_local), b"x")
                check(False, f"{name}: a connection to nothing returns {piece}")
            except ConnectionResetError:
                check(True, "")
            check(client.has_said(reason), f"{name}: the reason is not reported")
            client.end()
        check(server.end() == 130, "the far side does not end")
        check(proxy.cuts == options.cuts, f"{proxy.cuts} of {options.cuts} cuts")
        print(f"seed {options.seed}: {proxy.cuts} of {options.cuts} cuts, {proxy.carried} bytes carried", flush=True)
        if failures:
            for reports in sorted(folder.glob("*.reports")):
                print(f"{reports.name}:\n{reports.read_text()[-1_500:]}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
