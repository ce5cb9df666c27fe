#!/usr/bin/python3
"""Tests/Lab/chat.py: two chats that both advertise and scan, over links that are lost.
Runs in the laboratory: Tests/Lab/run chat.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

from discovery import SCAN_OPTIONS, SERVICE, DiscoveryTests, power
from tool import BLESEC, ROOT, main

sys.path.append(str(ROOT / "lab"))
from mgmt import Management, Refused  # noqa: E402

CUTS = 10
MESSAGES = 1000
# The least number of lines that are reported to each side as delivered between two cuts.
DELIVERED_BETWEEN_CUTS = 20
# More lines than a chat can read before the other chat leaves.
FLOOD = 200_000


class Chat:
    """A running `blesec chat`, whose output is read as it arrives."""

    def __init__(self, test, adapter, who, peer, *options, service=SERVICE):
        self.events = []
        self.unread = queue.SimpleQueue()
        self.received = []
        self.typed = self.delivered = 0
        self.process = subprocess.Popen(
            [BLESEC, "chat", "--service", service, "--adapter", adapter, "--identity",
             test.folder / who, *test.pin(peer), *SCAN_OPTIONS, *options, "--json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self.read_lines, self.read_events)]
        for reader in self.readers:
            reader.start()
        test.addCleanup(self.kill)

    def read_lines(self):
        for line in self.process.stdout:
            self.received.append(int(json.loads(line)["text"]))

    def read_events(self):
        for line in self.process.stderr:
            event = json.loads(line) | {"at": time.monotonic()}
            self.events.append(event)
            self.delivered += event["event"] == "delivered"
            self.unread.put(event)

    def type(self, numbers, pause=0.0):
        for number in numbers:
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
            time.sleep(pause)

    def talk(self, may_stop, count):
        """Types one number every 9 ms, until `may_stop` is set and at least `count` numbers are typed."""
        while self.typed < count or not may_stop.is_set():
            self.typed += 1
            self.type([self.typed], 0.009)

    def wait_for_deliveries(self, count, within):
        """Waits until `count` more lines are delivered."""
        seen, deadline = self.delivered, time.monotonic() + within
        while self.delivered < seen + count:
            assert time.monotonic() < deadline, f"not {count} lines delivered: {self.events[-20:]}"
            time.sleep(0.02)

    def wait_for_lines(self, count, within):
        """Waits until `count` more lines are received."""
        seen, deadline = len(self.received), time.monotonic() + within
        while len(self.received) < seen + count:
            assert time.monotonic() < deadline, f"not {count} lines received: {self.events[-20:]}"
            time.sleep(0.02)

    def wait_for_fates(self, within):
        """Waits until the result for each typed line is known."""
        deadline = time.monotonic() + within
        while len(self.fates()) < self.typed:
            assert time.monotonic() < deadline, f"some lines have no result: {self.events[-20:]}"
            time.sleep(0.1)

    def flood(self, count):
        """Types `count` numbers as fast as the chat reads them. Stops when the chat ends."""
        try:
            for number in range(1, count + 1):
                self.process.stdin.write(f"{number}\n")
        except (BrokenPipeError, ValueError):
            pass

    def wait_until_connected(self, within):
        """Waits until the chat reports that it is connected, and returns the time of this report."""
        return self.next_event(within, "state", state="connected")["at"]

    def wait_until_disconnected(self, within):
        """Waits until the link is lost."""
        while self.next_event(within, "state")["state"] == "connected":
            pass

    def wait_until_reconnected(self, since, within):
        """Waits until the chat has lost the link that it had at `since` and is connected again."""
        is_lost = False
        while True:
            event = self.next_event(within, "state")
            if event["at"] < since:
                continue
            if is_lost and event["state"] == "connected":
                return event["at"]
            is_lost = is_lost or event["state"] != "connected"

    def next_event(self, within, name, **members):
        """The next event with this name and these members, within so many seconds."""
        deadline = time.monotonic() + within
        while True:
            try:
                event = self.unread.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no {name} {members} in {within} s, but {self.events[-30:]}") from None
            if {"event": name, **members}.items() <= event.items():
                return event

    def fates(self):
        """The result for each line, by its number from 1: `delivered` or `unknown`."""
        fates = {}
        for event in self.events:
            if event["event"] in ("delivered", "unknown"):
                assert event["number"] not in fates, event
                fates[event["number"]] = event["event"]
        return fates

    def end(self, within=20):
        self.process.stdin.close()
        status = self.process.wait(within)
        for reader in self.readers:
            reader.join(5)
        return status

    def kill(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:  # typed lines that were never read
                pass


class ChatTests(DiscoveryTests):
    def setUp(self):
        super().setUp()
        self.management = Management()
        self.addCleanup(self.management.socket.close)
        # A process that was killed leaves a link behind, and an entry about the peer in bluetoothd.
        for adapter, peer in (("hci0", "hci1"), ("hci1", "hci0")):
            path = f"/org/bluez/{adapter}"
            device = f"{path}/dev_{self.address[peer].replace(':', '_')}"
            subprocess.run(
                ["/usr/bin/dbus-send", "--system", "--dest=org.bluez", "--print-reply", path,
                 "org.bluez.Adapter1.RemoveDevice", f"objpath:{device}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
        # bluetoothd ends such a link after two seconds. The kernel then keeps an advertisement that began
        # meanwhile, but nobody can connect to its sender. So a new listener has to start after the link's end.
        deadline = time.monotonic() + 20
        while self.cut():
            self.assertLess(time.monotonic(), deadline, "a link of an earlier test does not end")
            time.sleep(0.5)
        # After a dial that btvirt ended with an error, kernel 6.1 dials no more from an adapter, until the
        # adapter is switched off and on.
        for value in (False, True):
            for adapter in ("hci0", "hci1"):
                power(adapter, value)

    def cut(self):
        """Cuts the link between hci0 and hci1. Returns false if there is no link."""
        try:
            return self.management.disconnect(self.address["hci1"], [0])
        except Refused as error:
            # The link has ended by itself in the meantime ("not connected").
            if error.status != 0x02:
                raise
            return False

    def cut_after(self, wait, chats):
        """Cuts the link when `wait` has returned, and returns the time of the cut. If there is no link
        to cut, says so on standard output and calls `wait` again, until a cut succeeds."""
        while True:
            wait()
            begun = time.monotonic()
            if self.cut():
                return begun
            lost = [[event for event in chat.events if event["event"] == "state"][-3:] for chat in chats]
            print(f"   the link was lost before the cut: {lost}", flush=True)

    def chat(self, who, *options):
        adapter, peer = {
            "dialer": ("hci0", "listener"), "listener": ("hci1", "dialer")}[who]
        return Chat(self, adapter, who, peer, *options)

    def expect_delivered_lines(self, sender, receiver):
        """Checks that each typed line is reported as delivered, and has arrived once and in order."""
        lines = list(range(1, sender.typed + 1))
        self.assertEqual(sender.fates(), {number: "delivered" for number in lines})
        self.assertEqual(receiver.received, lines)

    def expect_timely_retries(self, chat):
        """Checks that each backoff is within its limit and ends at most a second late, and that a
        connected chat does not report its peer as out of range next."""
        states = [event for event in chat.events if event["event"] == "state"]
        for event, after in zip(states, states[1:]):
            if event["state"] == "backing-off":
                self.assertLessEqual(event["milliseconds"], 1000 << event["failures"] - 1, event)
                pause = after["at"] - event["at"]
                self.assertLess(pause, event["milliseconds"] / 1000 + 1, (event, after))
            elif event["state"] == "connected":
                self.assertNotEqual(after["state"], "out-of-range", "the peer was just connected")

    def test_chat_cut(self):
        """a chat of 1,000 messages each way continues after each of ten cuts of the link"""
        chats = [self.chat("dialer"), self.chat("listener")]
        for chat in chats:
            chat.wait_until_connected(within=40)
        may_stop = threading.Event()
        typists = [
            threading.Thread(target=chat.talk, args=(may_stop, MESSAGES), daemon=True) for chat in chats]
        for typist in typists:
            typist.start()
        seconds = []
        for _ in range(CUTS):
            # Waits for a number of lines, and not for a time, so that lines arrive between two cuts
            # on a slow machine as well.
            begun = self.cut_after(
                lambda: [chat.wait_for_deliveries(DELIVERED_BETWEEN_CUTS, within=60) for chat in chats], chats)
            # The lost link was good, so the first attempt begins immediately, and the next soon after.
            reconnections = [chat.wait_until_reconnected(begun, within=30) for chat in chats]
            seconds.append(max(reconnections) - begun)
        may_stop.set()
        for chat, typist in zip(chats, typists):
            typist.join(120)
            self.assertGreaterEqual(chat.typed, MESSAGES)
        # When one side has left, lines of the other side that wait for a link are never sent. So every
        # line has to be delivered before a side leaves.
        for chat in chats:
            chat.wait_for_fates(within=60)
        self.assertEqual([chat.end() for chat in chats], [0, 0], chats[0].events[-20:])
        for chat in chats:
            self.expect_timely_retries(chat)
            self.expect_delivered_lines(chat, chats[0] if chat is chats[1] else chats[1])
        print(
            f"   back after {min(seconds):.1f} to {max(seconds):.1f} s, "
            f"{sum(seconds) / CUTS:.1f} s on average; {chats[0].typed} and {chats[1].typed} lines, "
            "each delivered once", flush=True)

    def test_chat_leaves(self):
        """each line that the sender reports as delivered is in the output of the receiver, which leaves early"""
        receiver, sender = self.chat("dialer"), self.chat("listener")
        for chat in (receiver, sender):
            chat.wait_until_connected(within=40)
        flood = threading.Thread(target=sender.flood, args=(FLOOD,), daemon=True)
        flood.start()
        for _ in range(CUTS):
            begun = self.cut_after(lambda: receiver.wait_for_lines(20, within=60), [receiver, sender])
            receiver.wait_until_reconnected(begun, within=40)
        receiver.wait_for_lines(1, within=60)
        self.assertEqual(receiver.end(), 0, receiver.events[-20:])
        # After one second the sender has received everything that arrives over the ended link.
        time.sleep(1)
        sender.process.kill()
        flood.join(10)
        for reader in sender.readers:
            reader.join(10)
        fates = sender.fates()
        delivered = {number for number, fate in fates.items() if fate == "delivered"}
        arrived = receiver.received
        self.assertEqual(arrived, sorted(set(arrived)), "a line is out of order, or is there twice")
        self.assertGreater(len(delivered), CUTS * 10)
        self.assertLessEqual(delivered, set(arrived))
        print(
            f"   {len(arrived)} lines in the receiver's output, {len(delivered)} reported as delivered",
            flush=True)

    def test_chat_killed(self):
        """a chat continues after its peer was stopped, and after its peer was restarted"""
        listener, dialer = self.chat("listener", "--idle", "4"), self.chat("dialer")
        for chat in (listener, dialer):
            chat.wait_until_connected(within=40)
        # The radio stays connected, but the listener's ping, which is sent after 2 s, gets no answer.
        dialer.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        seconds = listener.next_event(10, "state", code="timed-out")["at"] - begun
        self.assertTrue(3 < seconds < 6, seconds)
        dialer.process.send_signal(signal.SIGCONT)
        for chat in (listener, dialer):
            chat.wait_until_connected(within=40)
        dialer.type([1])
        dialer.next_event(10, "delivered", number=1)
        dialer.kill()
        # A line that is typed before the listener notices the loss may be sent over the lost link, and its
        # result would be unknown.
        listener.wait_until_disconnected(within=10)
        listener.type([1])
        begun = time.monotonic()
        second_dialer = self.chat("dialer")
        second_dialer.wait_until_connected(within=40)
        print(
            f"   silence noticed after {seconds:.1f} s, back after {time.monotonic() - begun:.1f} s",
            flush=True)
        listener.next_event(10, "delivered", number=1)
        second_dialer.type([2])
        second_dialer.next_event(10, "delivered", number=1)
        self.assertEqual([second_dialer.end(), listener.end()], [0, 0])
        self.assertEqual((listener.received, second_dialer.received), ([1, 2], [1]))

    def test_chat_persists(self):
        """connect --persist finds listen --persist again after a cut, and continues with its input"""
        written = self.folder / "listener.written"
        listener = self.listen(*self.pin("dialer"), "--persist", written=written)
        given = self.folder / "fifo"
        os.mkfifo(given)
        # Opened for both reading and writing, so that no `open` waits for the FIFO's other end.
        feed = os.open(given, os.O_RDWR)
        dialer = self.connect(
            f"service:{SERVICE}", *self.pin("listener"), "--persist", given=given)
        for number, part in enumerate((b"one ", b"two")):
            dialer.line("channel ready: ", within=40)
            os.write(feed, part)
            deadline = time.monotonic() + 10
            while not written.read_bytes().endswith(part):
                self.assertLess(time.monotonic(), deadline, dialer.lines)
                time.sleep(0.05)
            if number == 0:
                self.cut()
        os.close(feed)
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)
        self.assertEqual(written.read_bytes(), b"one two")

    def test_chat_remembered(self):
        """a remembered peer is found by name at its last address, without a search"""
        state = ("--state", self.folder / "state")
        self.listen(*self.pin("dialer"), "--keep")
        first = self.connect(
            f"service:{SERVICE}", *self.pin("listener"), "--remember", "lamp", *state,
            "--timeout", "50")
        self.assertEqual(first.status(60), 0, first.lines)
        begun = time.monotonic()
        second = self.connect("peer:lamp", "--service", SERVICE, *state, "--timeout", "50")
        self.assertEqual(second.status(60), 0, second.lines)
        print(f"   {time.monotonic() - begun:.1f} s in all the second time", flush=True)
        self.assertRegex(
            second.lines[0], f"^dialing l2cap:{self.address['hci1']}/0x.*, where the peer was last$")
        self.assertNotIn("looking for", "".join(second.lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test_chat"], ChatTests))
