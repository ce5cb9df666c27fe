#!/usr/bin/python3
"""Tests/Lab/recovery.py: recovery after bluetoothd or an adapter was gone.
Runs in the laboratory: Tests/Lab/run recovery.

Separate from the other discovery tests, since kernel 6.1 may crash when an adapter disappears.
"""

import signal
import sys

from discovery import OTHER, SERVICE, DiscoveryTests, power, restart_bluetoothd
from tool import MEBIBYTE, TIMED_OUT, main

THIRD = "4c0f9e61-2b7d-4f0a-8b6e-91d3a5c7e2f4"


class RecoveryTests(DiscoveryTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # test_silent_peer takes a minute, in which the other tests run on other adapters.
        elsewhere = cls("test_silent_peer")
        cls.addClassCleanup(elsewhere.doCleanups)
        elsewhere.setUp()
        cls.with_silent_peer = elsewhere.silence("hci3", "hci2")

    def silence(self, listener, dialer):
        """A tool whose peer is stopped when the channel is ready."""
        peer = self.listen(
            *self.pin("dialer"), service=THIRD, adapter=listener,
            given=self.given("back", bytes(MEBIBYTE)))
        with_silent_peer = self.connect(f"service:{THIRD}", *self.pin("listener"), adapter=dialer)
        with_silent_peer.line("channel ready: ", within=60)
        peer.process.send_signal(signal.SIGSTOP)
        return with_silent_peer

    def apart(self):
        """A listener, and a dialer that searches for another service, which is not published."""
        listener = self.listen(*self.pin("dialer"))
        dialer = self.connect(f"service:{OTHER}", *self.pin("listener"))
        dialer.line("looking for ")
        return listener, dialer

    def meet(self, listener, dialer):
        """Expects that the dialer finds a new service, and that another dialer finds the listener."""
        other = self.listen(*self.pin("dialer"), service=OTHER)
        dialer.line("channel ready: ", within=60)
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.assertEqual(other.status(30), 0, other.lines)
        late = self.connect(f"service:{SERVICE}", *self.pin("listener"), "--timeout", "50")
        self.assertEqual(late.status(60), 0, late.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)

    def test_recovers_from_restart(self):
        """after bluetoothd is killed and restarted, both tools report that and find each other"""
        listener, dialer = self.apart()
        restart_bluetoothd(lambda: [
            tool.line("bluetoothd has gone", within=10) for tool in (listener, dialer)])
        for tool in (listener, dialer):
            tool.line("the adapter is on again", within=30)
        self.meet(listener, dialer)

    def test_recovers_from_switch(self):
        """after an adapter is switched off and on, both tools report that and find each other"""
        listener, dialer = self.apart()
        # Neither tool has a peer to dial: kernel 6.1 crashes when an adapter disappears during a
        # connect.
        for adapter, tool in (("hci1", listener), ("hci0", dialer)):
            power(adapter, False)
            self.addCleanup(power, adapter, True)
            tool.line("the adapter was switched off", within=10)
            power(adapter, True)
            tool.line("the adapter is on again", within=10)
        self.meet(listener, dialer)

    def test_silent_peer(self):
        """a peer that was found and then stops is given up within 75 seconds"""
        self.expect(self.with_silent_peer, TIMED_OUT, "(silent .* for 60 s|within 30 s)", within=75)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["recovers", "silent"], RecoveryTests))
