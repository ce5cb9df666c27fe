"""Other Noise libraries, beside blesec-bench and in turn with it: for tools/report.

Each peer reads a size and a number of repetitions from a line, and answers with the nanoseconds of
processor time that one seal and one open of such a message take it.
"""

import json
import os
import subprocess

import samples

PROTOCOL = "Noise_XX_25519_ChaChaPoly_SHA256"
SIZES = {16384: 2000, 65519: 500}  # and how often a sample repeats
ROUNDS = 9
GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}


class Peer:
    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sample(self, size, repetitions):
        print(size, repetitions, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended early")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)


def own(bench):
    """What our records take by size, framing included."""
    words = [word for size in SIZES for word in ("--size", str(size))]
    done = subprocess.run(
        [bench, "engine", "--protocol", PROTOCOL, *words, "--rounds", "2", "--json", "-"],
        capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"blesec-bench: {done.stderr.strip()}")
    return {row["size"]: row["nanoseconds"]["median"] for row in json.loads(done.stdout)["engine"]
            if row["layer"] == "NoiseEngine"}


def start(folder):
    """All peers, built where they have to be."""
    program = folder / "flynn"
    cache = str((folder / "go-cache").resolve())
    built = subprocess.run(
        ["go", "build", "-o", program, "Benchmarks/Peers/flynn.go"],
        env={**os.environ, **GO, "GOCACHE": cache}, capture_output=True, text=True, timeout=300)
    if built.returncode:
        raise RuntimeError(f"go build: {built.stderr.strip()}")
    yield Peer("flynn/noise", [program])
    yield Peer("noiseprotocol", [".build/venv/bin/python", "Benchmarks/Peers/noiseprotocol_peer.py"])


def measure(bench, folder):
    """Their time over ours, as ratios like those of a report."""
    others = list(start(folder))
    times = {(peer.name, size): [] for peer in others for size in SIZES}
    for peer in others:  # warm, and known to answer
        for size in SIZES:
            peer.sample(size, 10)
    for _ in range(ROUNDS):
        ours = own(bench)
        for peer in others:
            for size, repetitions in SIZES.items():
                times[peer.name, size].append(peer.sample(size, repetitions) / ours[size])
    for peer in others:
        peer.close()
    return [samples.ratio(f"peer/{name}/{size}", found, less=False)
            for (name, size), found in times.items()]
