#!/usr/bin/python3
"""forward.py: `blesec forward` between two tools, with a proxy that cuts the link at random bytes.

    Tests/Campaigns/forward.py [--tool PATH] [--connections N] [--cuts N] [--seed N]

N connections, half of them over TCP and half over a Unix socket, and several at a time, send random bytes to a
program that echoes them. Each connection shuts down its sending direction after its last byte; some send more
than a stream's window. Each byte must come back once and in order, and then the end. A TCP connection must be
reset if its target is not allowed, if nothing listens at its target, or if the peer is killed. At most half of the
cuts are made while the TCP connections run, so that the other connections meet cuts too. All cuts must have been made.
Prints what failed, and ends with `N passed, N failed`.
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
import traceback
from pathlib import Path

from cut import ROOT, Proxy

LIMIT = 300  # the longest wait, in seconds


def listening_socket(family, address):
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


def converse(family, address, data):
    """Sends `data`, and returns the bytes that come back up to the end."""
    with socket.socket(family) as end:
        end.settimeout(LIMIT)
        end.connect(address)

        # The kernel reports a reset only once: to the thread that sends, or to this thread, which receives.
        errors = []

        def send():
            try:
                end.sendall(data)
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


def receive(end, count):
    """Returns the next `count` bytes, or fewer if the end comes first."""
    received = b""
    while len(received) < count and (piece := end.recv(count - len(received))):
        received += piece
    return received


class Tool:
    def __init__(self, folder, name, arguments):
        self.reports = folder / f"{name}.reports"
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.reports.open("ab"))

    def wait_for(self, text):
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

    def kill(self):
        self.process.kill()
        self.process.wait()


def campaign(options, folder, tools, check):
    """Runs the connections, and passes each result to `check`. Appends each tool that it starts to `tools`."""
    generator = random.Random(options.seed)
    tool = options.tool.resolve()
    keys = []
    for name in ("near", "far"):
        made = subprocess.run([tool, "keygen", folder / name], check=True, capture_output=True, text=True)
        keys.append(made.stdout.split()[-1])
    tcp = listening_socket(socket.AF_INET, ("127.0.0.1", 0))
    unix = listening_socket(socket.AF_UNIX, str(folder / "target"))
    for target in (tcp, unix):
        threading.Thread(target=serve, args=(target,), daemon=True).start()
    # Four ports that are free once these sockets are closed. Nothing will listen at `closed_port` or `refused_port`;
    # the far side allows `closed_port` only.
    reserved = [listening_socket(socket.AF_INET, ("127.0.0.1", 0)) for _ in range(4)]
    local_port, other_local_port, closed_port, refused_port = [end.getsockname()[1] for end in reserved]
    for end in reserved:
        end.close()
    target_port = tcp.getsockname()[1]
    # The proxy's thread has a generator of its own. Otherwise the order in which the two threads draw numbers would
    # depend on their timing, and a seed would not give the same numbers again.
    proxy = Proxy(
        str(folder / "front"), str(folder / "back"), options.cuts // 2, 400_000,
        random.Random(generator.randrange(1 << 32)))
    proxy.start()

    def start(name, arguments):
        tools.append(Tool(folder, name, arguments))
        return tools[-1]

    def start_far(name="far"):
        return start(name, [
            tool, "forward", "--allow", f"tcp:127.0.0.1:{target_port}", "--allow", f"unix:{folder / 'target'}",
            "--allow", f"tcp:127.0.0.1:{closed_port}", "--at", f"unix:{folder / 'back'}", "--listen",
            "--identity", folder / "far", "--peer", keys[0], "--idle", "5"])

    def start_near(name, local, remote):
        return start(name, [
            tool, "forward", local, remote, "--at", f"unix:{folder / 'front'}",
            "--identity", folder / "near", "--peer", keys[1], "--idle", "5"])

    far_tool = start_far()
    check(far_tool.wait_for("listening on"), "the far side does not listen")
    for family, local, remote, address in (
            (socket.AF_INET, f"tcp:127.0.0.1:{local_port}", f"unix:{folder / 'target'}", ("127.0.0.1", local_port)),
            (socket.AF_UNIX, f"unix:{folder / 'local'}", f"tcp:127.0.0.1:{target_port}", str(folder / "local"))):
        if family == socket.AF_UNIX:
            proxy.cut_limit = options.cuts
        near_tool = start_near(f"near-{family.name}", local, remote)
        check(near_tool.wait_for("channel ready"), f"{family.name}: no channel")

        def exchange(number, seed):
            length = random.Random(seed).choice([0, 1, 3_000, 70_000, 400_000])
            data = random.Random(seed).randbytes(length)
            try:
                results[number] = converse(family, address, data) == data
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
                check(receive(end, 6) == b"before", "nothing came back before the kill")
                far_tool.kill()
                far_tool = start_far("far-again")
                try:
                    piece = end.recv(1)
                    check(False, f"a lost connection returns {piece}")
                except ConnectionResetError:
                    check(True, "")
            check(converse(family, address, b"after") == b"after", "nothing is carried after the kill")
        status = near_tool.end()
        check(status == 130, f"{family.name}: the status is {status}")
    for name, remote, reason in (
            ("refused", f"tcp:127.0.0.1:{refused_port}", "does not allow"),
            ("closed", f"tcp:127.0.0.1:{closed_port}", "cannot reach")):
        near_tool = start_near(name, f"tcp:127.0.0.1:{other_local_port}", remote)
        check(near_tool.wait_for("channel ready"), f"{name}: no channel")
        try:
            piece = converse(socket.AF_INET, ("127.0.0.1", other_local_port), b"x")
            check(False, f"{name}: a connection to nothing returns {piece}")
        except ConnectionResetError:
            check(True, "")
        check(near_tool.wait_for(reason), f"{name}: the reason is not reported")
        near_tool.end()
    check(far_tool.end() == 130, "the far side does not end")
    check(proxy.cuts == options.cuts, f"{proxy.cuts} of {options.cuts} cuts")
    print(f"seed {options.seed}: {proxy.cuts} of {options.cuts} cuts, {proxy.carried} bytes carried", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=ROOT / ".build/release/blesec", type=Path)
    parser.add_argument("--connections", default=60, type=int)
    parser.add_argument("--cuts", default=15, type=int)
    parser.add_argument("--seed", default=random.randrange(1 << 32), type=int)
    options = parser.parse_args()
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
        tools = []
        try:
            campaign(options, folder, tools, check)
        except (OSError, subprocess.SubprocessError):
            check(False, f"the run ended early:\n{traceback.format_exc()}")
        finally:
            for tool in tools:
                tool.kill()
        if failures:
            for reports in sorted(folder.glob("*.reports")):
                print(f"{reports.name}:\n{reports.read_text()[-1_500:]}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
