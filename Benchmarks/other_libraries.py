"""Measures other Noise libraries, alternately with blesec-bench. Used by tools/report.

Each library runs in a program of its own. The program reads lines with a message size and a number of repetitions,
and answers each line with the nanoseconds of processor time for one seal and one open of a message.
"""

import json
import os
import subprocess

import samples

PROTOCOL = "Noise_XX_25519_ChaChaPoly_SHA256"
SIZES = {16384: 2000, 65519: 500}  # each with the number of repetitions in a sample
ROUNDS = 9
SOURCES = "Benchmarks/OtherLibraries"
GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}


class Library:
    """A program that seals and opens with another Noise library."""

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


def blesec_times(bench):
    """The nanoseconds that blesec takes to seal and open a record, framing included, by size."""
    words = [word for size in SIZES for word in ("--size", str(size))]
    done = subprocess.run(
        [bench, "engine", "--protocol", PROTOCOL, *words, "--rounds", "2", "--json", "-"],
        capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"blesec-bench: {done.stderr.strip()}")
    return {row["size"]: row["nanoseconds"]["median"] for row in json.loads(done.stdout)["engine"]
            if row["layer"] == "NoiseEngine"}


def start(folder):
    """Builds and starts the programs of all libraries."""
    program = folder / "flynn"
    cache = str((folder / "go-cache").resolve())
    built = subprocess.run(
        ["go", "build", "-o", program, f"{SOURCES}/flynn.go"],
        env={**os.environ, **GO, "GOCACHE": cache}, capture_output=True, text=True, timeout=300)
    if built.returncode:
        raise RuntimeError(f"go build: {built.stderr.strip()}")
    yield Library("flynn/noise", [program])
    yield Library("noiseprotocol", [".build/venv/bin/python", f"{SOURCES}/noiseprotocol_pypi.py"])


def measure(bench, folder):
    """Each library's time divided by blesec's, in the form of a report's ratios."""
    libraries = list(start(folder))
    quotients = {(library.name, size): [] for library in libraries for size in SIZES}
    for library in libraries:  # a warm-up, which also shows that each program answers
        for size in SIZES:
            library.sample(size, 10)
    for _ in range(ROUNDS):
        own = blesec_times(bench)
        for library in libraries:
            for size, repetitions in SIZES.items():
                quotients[library.name, size].append(library.sample(size, repetitions) / own[size])
    for library in libraries:
        library.close()
    return [samples.ratio(f"library/{name}/{size}", found, less_is_better=False)
            for (name, size), found in quotients.items()]
