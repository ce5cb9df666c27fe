"""One end of a connection that carries files, written from docs/wire-format.md and docs/delivery.md.

    file_peer.py send|receive dialer|acceptor PRIVATE-KEY SOCKET [PATH ...] [--attack NAME] [--hold FILE]
                 [--give-up N] [--settle] [--prefix right|early|wrong] [--cuts N] [--seed N]

The key is raw X25519, in base64. `send` offers each PATH, a file or a folder, on a stream of its own, all
at once. `receive` has one PATH, the folder in which it stores what the peer offers. What the peer sends is
checked against the pages, and the program ends with an error if a rule is broken.

With --give-up a sender resets its stream when it has sent at least N bytes of data and the peer has received
them. With --settle it first waits until the peer has also stored the files that have ended. With --prefix
early a sender sends `prefix` before any data, and with --prefix wrong it sends a wrong hash. With --hold a
receiver claims to hold the bytes in FILE as the beginning of the first file that is not empty. With --attack,
attacks of `file_attacks.py` take the place of transfers: those whose names match NAME, a pattern as in a
shell. `send` makes one attack after another, in streams that it opens, and `receive` makes one in each stream
that the peer opens. --cuts closes N links abruptly, after random numbers of bytes.

Standard error gets `listening` when the program can be dialed, `ready KEY PROTOCOL` on each link, a line
for each thing that happens to a file, and `complete` when both sides have ended the connection. The exit
status is 0 only if both sides have ended the connection and every rule was kept.
"""

import argparse
import base64
import io
import os
import random
import sys

import file_attacks
from delivery_fields import Violation, check
from delivery_peer import DELIVERY, DeliveryPeer, carry
from delivery_streams import GivenUp, Streams
from file_frames import BULK, LABEL
from file_streams import FileReceiver, FileSender
from negotiated_peer import TAKEN, say

# How many bytes of a stream the peer may send ahead, and how many streams the peer may have open.
WINDOW = 65_536
MOST_STREAMS = 16
# For how long the program may run, in seconds.
MOST_SECONDS = 25


class FilePeer(DeliveryPeer):
    """A side that sends or receives files, and no messages."""

    def __init__(self, options, generator):
        streams = Streams(os.urandom(16), generator, WINDOW, MOST_STREAMS, MOST_STREAMS)
        super().__init__(
            options.role, base64.b64decode(options.private), [], io.BytesIO(), TAKEN | DELIVERY, generator,
            False, streams, [])
        self.limit_time(MOST_SECONDS)
        self.options = options
        self.hold = None
        if options.hold:
            with open(options.hold, "rb") as file:
                self.hold = file.read()
        self.attacks = file_attacks.find(options.attack) if options.attack else []
        self.has_begun = False

    def sender_programs(self):
        """The programs that a sender runs; none for a receiver."""
        options = self.options
        if options.command == "receive":
            return []
        if self.attacks:
            return [file_attacks.sender_program(self.attacks, self.open)]
        return [
            FileSender(
                self.open(), path, self.generator, options.give_up, options.settle, options.prefix).run()
            for path in options.paths]

    def open(self):
        """Opens a stream for an offer."""
        return self.streams.open(LABEL, BULK)

    def answer_stream(self, stream):
        check((stream.label, stream.priority) == (LABEL, BULK), "a stream that is not for files")
        if self.options.attack:
            check(self.attacks, "more offers than attacks")
            return [file_attacks.receiver_program(self.attacks.pop(0), stream)]
        hold, self.hold = self.hold, None
        return [FileReceiver(stream, self.options.paths[0], self.generator, hold).run()]

    def run_streams(self):
        if not self.has_begun:
            # Streams are opened only now, because their ids depend on the peer's key.
            self.has_begun, self.programs = True, self.sender_programs()
        # Runs each program up to its next `yield`. `next` returns its second argument if the program has ended.
        self.programs = [program for program in self.programs if next(program, program) is not program]

    @property
    def can_send_message(self):
        # There are no messages, only the end of this side's direction. It is sent when no program runs, and
        # with `receive` only after the peer's end.
        waits = self.options.command == "receive" and self.receiver.end is None
        return not waits and not self.programs and super().can_send_message


def run(options):
    generator = random.Random(options.seed)
    peer = FilePeer(options, generator)
    cuts = [generator.randrange(1_000, 200_000) for _ in range(options.cuts)]
    links = carry(peer, options, cuts)
    check(not peer.programs, "a program waits for what its stream never gets")
    if options.command == "receive":
        check(not peer.attacks, "not every attack was made")
    say(f"complete: {links} links")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["send", "receive"])
    parser.add_argument("role", choices=["dialer", "acceptor"])
    parser.add_argument("private")
    parser.add_argument("socket")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--attack")
    parser.add_argument("--hold")
    parser.add_argument("--give-up", type=int)
    parser.add_argument("--settle", action="store_true")
    parser.add_argument("--prefix", choices=["right", "early", "wrong"], default="right")
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    try:
        run(parser.parse_args())
    except Violation as violation:
        sys.exit(f"file_peer.py: {violation}")
    except GivenUp as error:
        sys.exit(f"file_peer.py: the peer gives a stream up with code {error.args[0]}")


if __name__ == "__main__":
    main()
