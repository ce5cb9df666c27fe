#!/usr/bin/python3
"""Tests/Lab/bench.py: measurements of `blesec-bench` over kernel L2CAP sockets between hci0 and hci1.
Runs in the laboratory: Tests/Lab/run bench.

    Tests/Lab/bench.py [NAME ...]      all tests, or those whose names contain a NAME

Times in the laboratory come from an emulated processor, and are noisy: on a busy machine single
measurements differ by a factor of five. So a ratio compares two measurements that follow each other,
and a test needs the median of at least nine ratios. While a median is below the limit, the test
measures further ratios, up to 27.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import tool

BENCH = tool.ROOT / ".build/release/blesec-bench"
LEAST_PAIRS, MOST_PAIRS = 9, 27  # how many pairs of measurements give the ratios
LEAST_RATIO = 0.85
SDU = 4197  # as L2CAPSocket.maximumSDU
BLOCK = 100  # SDUs
ENGINES = {"Noise": "Noise_XX_25519_ChaChaPoly_SHA256", "TLS": "TLS1.3"}


def bench(*arguments, engines=("Noise",)):
    """The report of a run over L2CAP, on the plain link and with these engines."""
    command = [BENCH, "--scenario", "link", "--transport", "l2cap", "--adapter", "hci0",
               "--peer-adapter", "hci1", "--json", "-", *map(str, arguments)]
    for engine in engines:
        command += ["--protocol", ENGINES[engine]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def goodput(report):
    """Bytes a second for the plain link and each engine, from a report with one message size."""
    return {row["engine"]: row["goodput-bytes-per-second"]["median"] for row in report["link"]}


def l2test(address):
    """Bytes a second that BlueZ's l2test moves in SDUs of `SDU` bytes, as its receiver measures them."""
    common = ["-V", "le_public", "-P", "241", "-I", str(SDU)]
    # The receiver prints the speed of each block. The first block includes the wait for the sender, so
    # only the second counts. The third may never be complete, because the sender loses its last SDUs when
    # it ends. The receiver itself measures the times: this program may read the lines late.
    receiver = subprocess.Popen(
        ["l2test", "-i", "hci1", *common, "-b", str(BLOCK * SDU), "-r"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "LC_ALL": "C"})
    sender = None
    speeds = []
    # If the sender cannot connect, the receiver would wait for ever.
    limit = threading.Timer(60, receiver.kill)
    limit.start()
    try:
        for line in receiver.stdout:
            if "Waiting for connection" in line:
                sender = subprocess.Popen(
                    ["l2test", "-i", "hci0", *common, "-b", str(SDU), "-N", str(3 * BLOCK), "-s",
                     address],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            elif found := re.search(r" bytes in [0-9.]+ sec, ([0-9.]+) kB/s", line):
                speeds.append(float(found[1]) * 1024)
            if len(speeds) == 2 or "Disconnect" in line:
                break
    finally:
        limit.cancel()
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()
        if sender:
            sender.kill()
            sender.wait()
    if len(speeds) < 2:
        raise AssertionError(f"l2test moved {len(speeds)} blocks of two")
    return speeds[1]


class BenchTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.address = dict(line.split()[:2] for line in tool.mgmt("list").splitlines())["hci1"]

    def test_packets(self):
        """the adapter sends exactly as many packets as are computed from the SDUs and their credits"""
        sizes = (1, 64, 165, 1000, 4096, 16384, 65536)
        size_options = [word for size in sizes for word in ("--size", size)]
        report = bench("--one-way", "--rounds", 1, "--sample", 1, *size_options)
        rows = report["packets"]
        self.assertEqual(len(rows), 2 * len(sizes))
        for row in rows:
            self.assertEqual(row["packets"], row["packets-computed"], row)
            self.assertGreater(row["packets"], 0, row)

    def test_share(self):
        """with messages of 4,096 bytes and more, messages are 99 % or more of the bytes in SDUs"""
        size_options = ["--size", 4096, "--size", 10000, "--size", 65536]
        report = bench("--one-way", "--rounds", 1, "--sample", 1, *size_options)
        rows = [row for row in report["packets"] if row["engine"] != "plain"]
        self.assertEqual(len(rows), 3)
        for row in rows:
            print(f"   {row['size']} bytes: {row['message-share']}")
            self.assertGreaterEqual(row["message-share"], 0.99, row)

    def test_sizes(self):
        """SDUs of five sizes up to 8 KiB reach receivers whose MTU is the same or larger"""
        rows = bench("--one-way", "--rounds", 1, "--sample", 20)["sdus"]
        sizes = (512, 1024, 2048, SDU, 8192)
        self.assertEqual(
            [(row["mtu"], row["sdu"]) for row in rows if row["engine"] == "plain"],
            [(mtu, sdu) for mtu in sizes for sdu in sizes if sdu <= mtu])
        for plain, sealed in zip(rows[::2], rows[1::2]):
            plain_speed, noise_speed = (
                row["goodput-bytes-per-second"]["median"] for row in (plain, sealed))
            print(f"   MTU {plain['mtu']}, SDU {plain['sdu']}: plain {plain_speed / 1e3:.0f} kB/s, "
                  f"Noise {noise_speed / 1e3:.0f} kB/s")
            self.assertGreater(min(plain_speed, noise_speed), 0)

    def test_speed(self):
        """both engines reach 85 % of the plain link's speed, and the plain link 85 % of l2test's"""
        ratios = {"Noise to plain": [], "TLS to plain": [], "plain to l2test": []}
        for pair in range(MOST_PAIRS):
            if pair >= LEAST_PAIRS and min(map(statistics.median, ratios.values())) >= LEAST_RATIO:
                break
            l2test_speed = l2test(self.address)
            # There are many short rounds, and each begins with a different engine. So other work of
            # the processor slows down all engines, and not only one.
            speeds = goodput(bench("--one-way", "--rounds", 14, "--sample", 50, "--size", 16384,
                                   engines=ENGINES))
            plain_speed = speeds["plain"]
            for engine, name in ENGINES.items():
                ratios[f"{engine} to plain"].append(speeds[name] / plain_speed)
            ratios["plain to l2test"].append(plain_speed / l2test_speed)
            print(f"   kB/s: l2test {l2test_speed / 1e3:.0f}, " + ", ".join(
                f"{name} {speed / 1e3:.0f}" for name, speed in speeds.items()), flush=True)
        medians = {name: statistics.median(values) for name, values in ratios.items()}
        print("   " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in medians.items()))
        for name, ratio in medians.items():
            self.assertGreaterEqual(ratio, LEAST_RATIO, name)


if __name__ == "__main__":
    sys.exit(tool.main(sys.argv[1:], BenchTests))
