#!/usr/bin/python3
"""Tests/Lab/recovery.py: bluetoothd is restarted, an adapter is off, a peer hangs.
Runs in the laboratory: Tests/Lab/run recovery.

Separate from the other discovery tests, since kernel 6.1 may crash when an adapter disappears, and the
crash would end those tests too.
"""

import signal
import sys

from discovery import OTHER_SERVICE, SERVICE, DiscoveryTests, power, restart_bluetoothd
from tool import MEBIBYTE, TIMED_OUT, main

THIRD_SERVICE = "4c0f9e61-2b7d-4f0a-8b6e-91d3a5c7e2f4"


class RecoveryTests(DiscoveryTests):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A dialer takes a minute to give up a silent peer. So this dialer and its listener start here, on two
        # adapters that no other test uses, and the dialer waits while the other tests run.
        starter = cls("test_silent_peer")
        cls.addClassCleanup(starter.doCleanups)
        starter.setUp()
        cls.dialer_of_silent_peer = starter.dial_and_silence("hci3", "hci2")

    def dial_and_silence(self, listening_adapter, dialing_adapter):
        """Starts a dialer, and suspends its listener as soon as the channel is ready. Returns the dialer."""
        listener = self.listen(
            *self.pin("dialer"), service=THIRD_SERVICE, adapter=listening_adapter,
            given=self.given("back", bytes(MEBIBYTE)))
        dialer = self.connect(
            f"service:{THIRD_SERVICE}", *self.pin("listener"), adapter=dialing_adapter)
        dialer.line("channel ready: ", within=60)
        listener.process.send_signal(signal.SIGSTOP)
        return dialer

    def listener_and_searching_dialer(self):
        """A listener, and a dialer that searches for a service that nobody advertises yet."""
        listener = self.listen(*self.pin("dialer"))
        dialer = self.connect(f"service:{OTHER_SERVICE}", *self.pin("listener"))
        dialer.line("looking for ")
        return listener, dialer

    def expect_recovered(self, listener, dialer):
        """Expects that the dialer finds a new listener, and that a new dialer finds the listener."""
        new_listener = self.listen(*self.pin("dialer"), service=OTHER_SERVICE)
        dialer.line("channel ready: ", within=60)
        self.assertEqual(dialer.status(30), 0, dialer.lines)
        self.assertEqual(new_listener.status(30), 0, new_listener.lines)
        new_dialer = self.connect(f"service:{SERVICE}", *self.pin("listener"), "--timeout", "50")
        self.assertEqual(new_dialer.status(60), 0, new_dialer.lines)
        self.assertEqual(listener.status(30), 0, listener.lines)

    def test_recovers_from_restart(self):
        """a listener and a dialer report that bluetoothd was killed, and work again after its restart"""
        listener, dialer = self.listener_and_searching_dialer()
        restart_bluetoothd(lambda: [
            tool.line("bluetoothd has gone", within=10) for tool in (listener, dialer)])
        for tool in (listener, dialer):
            tool.line("the adapter is on again", within=30)
        self.expect_recovered(listener, dialer)

    def test_recovers_from_adapter_off(self):
        """a listener and a dialer report that their adapter was off, and work again once it is on"""
        listener, dialer = self.listener_and_searching_dialer()
        # While an adapter is off, no tool may have a peer to dial, since kernel 6.1 may crash when an adapter
        # disappears during a connect.
        for adapter, tool in (("hci1", listener), ("hci0", dialer)):
            power(adapter, False)
            self.addCleanup(power, adapter, True)
            tool.line("the adapter was switched off", within=10)
            power(adapter, True)
            tool.line("the adapter is on again", within=10)
        self.expect_recovered(listener, dialer)

    def test_silent_peer(self):
        """a dialer gives up a peer that does nothing more once the channel is ready"""
        self.expect(self.dialer_of_silent_peer, TIMED_OUT, "(silent .* for 60 s|within 30 s)", within=75)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["recovers", "silent"], RecoveryTests))
