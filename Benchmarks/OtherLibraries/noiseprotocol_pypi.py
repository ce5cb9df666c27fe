#!/usr/bin/env python3
"""Seals and opens with PyPI's noiseprotocol, for tools/report. Reads lines with a message size and a
number of repetitions, and answers each line with the nanoseconds of processor time for one seal and one
open."""

import sys
import time

from noise.connection import NoiseConnection


def pair():
    """The two ends of a connection after a handshake NN."""
    ends = [NoiseConnection.from_name(b"Noise_NN_25519_ChaChaPoly_SHA256") for _ in range(2)]
    ends[0].set_as_initiator()
    ends[1].set_as_responder()
    for end in ends:
        end.start_handshake()
    ends[1].read_message(ends[0].write_message())
    ends[0].read_message(ends[1].write_message())
    return ends


def main():
    sealing, opening = pair()
    for line in sys.stdin:
        size, repetitions = map(int, line.split())
        message = bytes([1]) * size
        start = time.thread_time_ns()
        for _ in range(repetitions):
            opened = opening.decrypt(sealing.encrypt(message))
        elapsed = time.thread_time_ns() - start
        if opened != message:
            raise ValueError("the decrypted bytes differ")
        print(elapsed / repetitions, flush=True)


main()
