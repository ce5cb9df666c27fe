"""Runs the bench over the kernel's L2CAP sockets in the laboratory. Used by tools/report.

Tests/Lab/bench.py measures in the guest; this module reads what bench.py prints.
"""

import re
import subprocess

import samples

SHARE = re.compile(r"\s*(\d+) bytes: ([\d.]+)")
RATIO = re.compile(r"(\w+ to \w+) ([\d.]+)")
COUNTS = re.compile(r"\d+ tests, (\d+) passed, (\d+) failed, (\d+) skipped")


def measure():
    """The ratios, in the form of a report's ratios, and the reason to print for a figure that is missing."""
    try:
        done = subprocess.run(
            ["Tests/Lab/run", "bench"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=900)
    except subprocess.TimeoutExpired:
        return [], "the laboratory took longer than 15 minutes"
    lines = done.stdout.splitlines()
    found = []
    for line in lines:
        if match := SHARE.fullmatch(line):
            found.append(samples.ratio(f"lab/share/{match[1]}", [float(match[2])], less_is_better=False))
        elif line.startswith(" "):
            for name, value in RATIO.findall(line):
                found.append(samples.ratio(f"lab/{name}", [float(value)], less_is_better=False))
    counts = COUNTS.fullmatch(lines[-1]) if lines else None
    if counts and counts[2] == "0":
        # A test of the suite fails if the number of packets differs from the computed one, so the ratio is 1.
        found.append(samples.ratio("lab/packets", [1.0], less_is_better=True))
        return found, "the laboratory's bench does not measure it"
    last = (done.stdout + done.stderr).strip().rsplit("\n", 1)[-1]
    return found, f"the laboratory's bench failed: {last}"
