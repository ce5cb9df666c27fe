#!/usr/bin/python3
"""Tests/Lab/files.py: files between two tools that find each other, over links that are cut.
Runs in the laboratory: Tests/Lab/run files. BLESEC_ROUNDS=N compares the speed N times instead of three times.
"""

import json
import os
import random
import re
import sys
import time

from chat import ChatTests
from discovery import SCAN_OPTIONS, SERVICE
from tool import MEBIBYTE, Tool, main

CUTS = 10
ROUNDS = int(os.environ.get("BLESEC_ROUNDS", 3))


class FileTests(ChatTests):
    def receive(self, *options, adapter="hci1"):
        """Starts a receiver that advertises the service. Returns it, and the folder for the received files."""
        target = self.folder / "target"
        target.mkdir(exist_ok=True)
        tool = Tool(
            self, "receive", target, "--service", SERVICE, "--adapter", adapter, "--identity",
            self.folder / "listener", *self.pin("dialer"), "--accept", "always", "--idle", "4", *SCAN_OPTIONS,
            *options)
        tool.line("{" if "--json" in options else f"advertising {SERVICE}")
        return tool, target

    def send(self, *words, adapter="hci0"):
        return Tool(
            self, "send", f"service:{SERVICE}", *words, "--adapter", adapter, "--identity",
            self.folder / "dialer", *self.pin("listener"), "--idle", "4", *SCAN_OPTIONS)

    def test_files_cut(self):
        """a file of 2 MiB arrives over ten cuts of the link, and both tools report its progress correctly"""
        source = self.folder / "source.bin"
        source.write_bytes(random.Random(1).randbytes(2 * MEBIBYTE))
        receiver, target = self.receive("--json")
        sender = self.send(source, "--json")
        begun = time.monotonic()
        generator = random.Random(2)
        cuts = 0

        def held_bytes():
            return sum(path.stat().st_size for path in target.glob(".blesec-partial/*/*/f-*"))

        while cuts < CUTS:
            wanted = min(held_bytes() + generator.randrange(60_000, 150_000), 2 * MEBIBYTE - 100_000)
            deadline = time.monotonic() + 60
            while held_bytes() < wanted:
                if time.monotonic() > deadline:
                    said = "\n--\n".join("\n".join(tool.collect_lines()[-15:]) for tool in (receiver, sender))
                    self.fail(f"{held_bytes()} bytes after {cuts} cuts\n{said}")
                time.sleep(0.01)
            cuts += self.cut()
        self.assertEqual(sender.status(120), 0, sender.lines[-20:])
        self.assertEqual(receiver.status(60), 0, receiver.lines[-20:])
        self.expect_content(target / "source.bin", source.read_bytes())
        for tool, last in ((sender, "sent"), (receiver, "received")):
            events = [json.loads(line) for line in tool.lines if line.startswith("{")]
            steps = [event for event in events if event["event"] == "progress"]
            byte_counts = [step["bytes"] for step in steps]
            self.assertEqual(byte_counts, sorted(byte_counts), "the progress goes back")
            self.assertTrue(
                all(step["state"] == "done" or step["bytes"] <= step["total"] for step in steps), steps)
            self.assertEqual(steps[-1]["state"], "done", steps[-3:])
            self.assertIn(last, [event["event"] for event in events])
            # The state is `done` only once, when the whole file is stored.
            self.assertEqual([step["state"] for step in steps].count("done"), 1)
        print(f"   2 MiB and {cuts} cuts in {time.monotonic() - begun:.0f} s", flush=True)

    def transfer(self, path):
        """Sends a file or a folder. Returns the seconds that the sender reports, and the received path."""
        receiver, target = self.receive()
        sender = self.send(path)
        self.assertEqual(sender.status(120), 0, sender.lines[-20:])
        self.assertEqual(receiver.status(60), 0, receiver.lines[-20:])
        line = next(line for line in sender.lines if line.startswith("sent "))
        seconds = float(re.search(r" in ([\d.]+) s", line)[1])
        return seconds, target / path.name

    def test_files_tree(self):
        """many small files need little more time than one file with as many bytes"""
        generator = random.Random(3)
        tree, file = self.folder / "tree", self.folder / "one.bin"
        tree.mkdir()
        count = 2_000
        for number in range(count):
            (tree / f"{number}.txt").write_bytes(generator.randbytes(1_024))
        file.write_bytes(generator.randbytes(count * 1_024))
        file_seconds, received_path = self.transfer(file)
        self.expect_content(received_path, file.read_bytes())
        tree_seconds, received_path = self.transfer(tree)
        self.assertEqual(len(list(received_path.iterdir())), count)
        print(
            f"   {count} files of 1 KiB in {tree_seconds} s, one file in {file_seconds} s: "
            f"ratio {file_seconds / tree_seconds:.2f}", flush=True)
        # The times also depend on the laboratory's processor, which other guests use too.
        self.assertGreater(file_seconds / tree_seconds, 0.4)

    def test_files_speed(self):
        """a file arrives nearly as fast as the same bytes over a channel"""
        content = random.Random(4).randbytes(4 * MEBIBYTE)
        file = self.folder / "one.bin"
        file.write_bytes(content)
        ratios = []
        for _ in range(ROUNDS):
            seconds, received_path = self.transfer(file)
            received_path.unlink()
            written = self.folder / "written"
            listener = self.listen(*self.pin("dialer"), written=written)
            dialer = self.connect(
                f"service:{SERVICE}", *self.pin("listener"), given=self.given("there", content))
            dialer.line("channel ready")
            begun = time.monotonic()
            self.assertEqual(dialer.status(120), 0, dialer.lines)
            channel_seconds = time.monotonic() - begun
            self.assertEqual(listener.status(20), 0, listener.lines)
            ratios.append(channel_seconds / seconds)
            print(f"   4 MiB: {seconds} s as a file, {channel_seconds:.1f} s over a channel", flush=True)
        ratios.sort()
        ratio = ratios[len(ratios) // 2]
        print(f"   {ratio:.2f} of the channel's speed", flush=True)
        # The file's time includes discovery, and the channel's does not. With few rounds, a lower ratio is enough.
        self.assertGreater(ratio, 0.9 if ROUNDS > 8 else 0.7)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test_files"], FileTests))
