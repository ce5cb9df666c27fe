#!/usr/bin/python3
"""Tests/Lab/meeting.py: peers that all advertise and search for each other, and the resulting links.
Runs in the laboratory: Tests/Lab/run meeting.
"""

import contextlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from chat import Chat, ChatTests
from discovery import OTHER_SERVICE, SERVICE
from tool import BLESEC, ROOT, main

sys.path.insert(0, str(ROOT / "lab"))
from mgmt import Management, Refused  # noqa: E402

STARTS = 20
# Lists both ends of each L2CAP channel of this kernel. The columns read here: 0 source, 2 destination,
# 4 state, 5 PSM.
CHANNELS = Path("/sys/kernel/debug/bluetooth/l2cap")
CONNECTED = "1"
# Each pair is two keys and a service, by which the devices with these keys look for each other.
PAIRS = (("dialer", "listener", SERVICE), ("stranger", "guest", OTHER_SERVICE))


class MeetingTests(ChatTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not CHANNELS.exists():
            subprocess.run(
                ["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], check=True, timeout=10)

    def setUp(self):
        super().setUp()
        outcome = subprocess.run(
            [BLESEC, "keygen", self.folder / "guest"], capture_output=True, text=True, check=True)
        self.keys["guest"] = dict(line.split(": ", 1) for line in outcome.stdout.splitlines())

    def meet(self, pairs):
        """Starts a chat for each device of the pairs, waits until all are connected, and returns them."""
        devices = [
            device for one, other, service in pairs
            for device in ((one, other, service), (other, one, service))]
        chats = [
            Chat(self, f"hci{number}", who, peer, service=service)
            for number, (who, peer, service) in enumerate(devices)]
        for chat in chats:
            chat.wait_until_connected(within=60)
        return chats

    def channel_ends(self):
        """The number of ends of blesec's channels, by the end's own adapter and its peer's adapter."""
        names = {address.lower(): name for name, address in self.address.items()}
        rows = [line.split() for line in CHANNELS.read_text().splitlines()]
        return Counter(
            (names[row[0]], names[row[2]]) for row in rows
            if row[4] == CONNECTED and int(row[5]) >= 0x80)

    def separate(self, chats):
        """Ends all chats and their links, without the two seconds that bluetoothd takes to end a link."""
        for chat in chats:
            chat.process.kill()
        for chat in chats:
            chat.process.wait()
        for index in range(0, len(chats), 2):
            with contextlib.suppress(Refused):  # the link may have ended by itself
                Management().disconnect(self.address[f"hci{index + 1}"], [index])
        # The chats that start next stand for new devices, so bluetoothd must not know them. When a link
        # ends, bluetoothd by itself forgets a device that dialed, but not a device that was dialed.
        removals = [
            subprocess.Popen(
                ["/usr/bin/dbus-send", "--system", "--dest=org.bluez", "--print-reply",
                 f"/org/bluez/{adapter}", "org.bluez.Adapter1.RemoveDevice",
                 f"objpath:/org/bluez/{adapter}/dev_{self.address[other].replace(':', '_')}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for adapter, other in (
                (f"hci{number}", f"hci{number ^ 1}") for number in range(len(chats)))]
        for removal in removals:
            removal.wait(20)

    def test_meeting_of_two(self):
        """two devices that both advertise and search end up with one link, in 20 of 20 starts"""
        seconds = []
        for _ in range(STARTS):
            begun = time.monotonic()
            chats = self.meet(PAIRS[:1])
            seconds.append(time.monotonic() - begun)
            # A second link may still be opening or closing. Once both typed lines are delivered, only
            # the link that the chats keep may be left.
            for chat in chats:
                chat.type([1])
            for chat in chats:
                chat.next_event(20, "delivered", number=1)
            self.assertEqual(
                self.channel_ends(), {("hci0", "hci1"): 1, ("hci1", "hci0"): 1}, chats[0].events)
            self.separate(chats)
        seconds.sort()
        print(
            f"   {STARTS} of {STARTS}, after {seconds[0]:.1f} to {seconds[-1]:.1f} s, "
            f"the median is {seconds[STARTS // 2]:.1f} s", flush=True)

    def test_meeting_of_four(self):
        """four adapters with one service for each pair get one link for each pair"""
        # A virtual controller with several links can mix up their packets. So each pair has its own
        # service, and no device dials a device of the other pair.
        begun = time.monotonic()
        chats = self.meet(PAIRS)
        print(f"   after {time.monotonic() - begun:.1f} s", flush=True)
        for chat in chats:
            chat.type([1])
        for chat in chats:
            chat.next_event(20, "delivered", number=1)
        wanted = {(f"hci{number}", f"hci{number ^ 1}"): 1 for number in range(4)}
        self.assertEqual(self.channel_ends(), wanted)
        self.separate(chats)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["meeting"], MeetingTests))
