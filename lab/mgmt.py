#!/usr/bin/python3
"""lab/mgmt.py: sets Bluetooth controllers up, and cuts links, through the kernel's management socket.

    mgmt.py list                              controllers: name, address, settings
    mgmt.py connections                       links: controller, address of the peer, its type
    mgmt.py disconnect ADDRESS [hciN]         cuts the link to ADDRESS, at hciN or wherever it is
    mgmt.py SETTING on|off [hciN ...]         switches SETTING at the named controllers, or at all
    mgmt.py up --count N [--advertising]      waits for N controllers and makes them ready to use

SETTING: power, le, connectable, bondable, advertising. Reading needs no privilege;
changes need CAP_NET_ADMIN. Exit status: 0 when done, 1 when it failed, 64 on wrong
usage, 68 when there is no such controller or link.
"""

import ctypes
import os
import socket
import struct
import sys

# BlueZ doc/mgmt-api.txt
READ_INDEX_LIST, READ_INFO, DISCONNECT, GET_CONNECTIONS = 0x0003, 0x0004, 0x0014, 0x0015
READ_ADVERTISING, ADD_ADVERTISING, REMOVE_ADVERTISING = 0x003D, 0x003E, 0x003F
SETTERS = {"power": 0x0005, "connectable": 0x0007, "bondable": 0x0009, "le": 0x000D}
COMMAND_COMPLETE, COMMAND_STATUS, INDEX_ADDED = 0x0001, 0x0002, 0x0004
NO_INDEX = 0xFFFF
SETTINGS = (
    "powered connectable fast-connectable discoverable bondable link-security ssp br/edr hs le "
    "advertising secure-conn debug-keys privacy configuration static-addr phy wide-band-speech"
).split()
STATUS = (
    "success, unknown command, not connected, failed, connect failed, authentication failed, "
    "not paired, no resources, timeout, already connected, busy, rejected, not supported, "
    "invalid parameters, disconnected, not powered, cancelled, invalid index, rfkilled, "
    "already paired, permission denied"
).split(", ")
ADDRESS_TYPES = ("br/edr", "public", "random")


class Refused(Exception):
    """The kernel's answer to a command was not `success`."""

    def __init__(self, status):
        self.status = status
        super().__init__(STATUS[status] if status < len(STATUS) else f"status 0x{status:02x}")


class Management:
    """A management socket, for one command at a time. It notes the indexes of controllers that appear, for
    `wait_for_indexes`."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_RAW, socket.BTPROTO_HCI)
        # Python's own bind cannot name the HCI channel. So this sockaddr_hci has the family,
        # HCI_DEV_NONE and HCI_CHANNEL_CONTROL.
        address = struct.pack("=HHH", socket.AF_BLUETOOTH, 0xFFFF, 3)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.bind(self.socket.fileno(), address, len(address)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.added = []

    def command(self, code, index=NO_INDEX, body=b""):
        """Sends a command and returns the body of its answer."""
        self.socket.send(struct.pack("<HHH", code, index, len(body)) + body)
        while True:
            event, event_index, parameters = self.receive()
            if event in (COMMAND_COMPLETE, COMMAND_STATUS) and event_index == index:
                answered_code, status = struct.unpack_from("<HB", parameters)
                if answered_code == code:
                    if status != 0:
                        raise Refused(status)
                    return parameters[3:]

    def receive(self):
        """The next event: its code, the index of its controller, and its parameters."""
        packet = self.socket.recv(65536)
        event, index, _ = struct.unpack_from("<HHH", packet)
        if event == INDEX_ADDED:
            self.added.append(index)
        return event, index, packet[6:]

    def indexes(self):
        answer = self.command(READ_INDEX_LIST)
        return sorted(struct.unpack_from(f"<{struct.unpack_from('<H', answer)[0]}H", answer, 2))

    def wait_for_indexes(self, count):
        """Waits until there are `count` controllers, and returns their indexes."""
        found = set(self.indexes())
        while len(found | set(self.added)) < count:
            self.receive()
        return sorted(found | set(self.added))

    def info(self, index):
        """The controller's address and the names of its current settings."""
        answer = self.command(READ_INFO, index)
        (bits,) = struct.unpack_from("<I", answer, 13)
        names = [name for bit, name in enumerate(SETTINGS) if bits >> bit & 1]
        if "advertising" not in names and self.advertisements(index):
            names.append("advertising")
        return address_text(answer[:6]), names

    def set(self, setting, index, value):
        if setting == "advertising":
            self.advertise(index, value)
        else:
            self.command(SETTERS[setting], index, bytes([value]))

    def advertise(self, index, enable):
        """Adds a connectable advertisement, or, if `enable` is false, removes all advertisements.

        The kernel's own setting "advertising" is not used. With this setting on, the
        kernel dials by advertising to the peer instead of scanning for it, and two
        controllers that both advertise never find each other.
        """
        if enable:  # instance 1, connectable, no data, without a time limit
            self.command(ADD_ADVERTISING, index, struct.pack("<BIHHBB", 1, 1, 0, 0, 0, 0))
        elif self.advertisements(index):
            self.command(REMOVE_ADVERTISING, index, bytes([0]))

    def advertisements(self, index):
        """The number of advertising instances."""
        return self.command(READ_ADVERTISING, index)[7]

    def connections(self, index):
        """The links of a controller, as pairs of address and address type."""
        try:
            answer = self.command(GET_CONNECTIONS, index)
        except Refused as refused:
            if refused.status == 0x0F:  # not powered, so no links
                return []
            raise
        (count,) = struct.unpack_from("<H", answer)
        return [(address_text(answer[2 + 7 * n : 8 + 7 * n]), answer[8 + 7 * n]) for n in range(count)]

    def disconnect(self, address, indexes):
        """Cuts the links of these controllers to `address`; returns false when there is none."""
        cut = False
        for index in indexes:
            for peer, kind in self.connections(index):
                if peer == address:
                    self.command(DISCONNECT, index, address_bytes(address) + bytes([kind]))
                    cut = True
        return cut


def address_text(address):
    """A device address as text, from its six bytes, little-endian."""
    return ":".join(f"{byte:02X}" for byte in reversed(address))


def address_bytes(address):
    """The six bytes, little-endian, of a device address in text."""
    return bytes(int(byte, 16) for byte in reversed(address.split(":")))


def chosen(management, names):
    """The indexes of the controllers with these names; of all controllers if there are no names."""
    known = management.indexes()
    if not names:
        return known
    for name in names:
        if name not in (f"hci{index}" for index in known):
            raise LookupError(f"no controller {name}")
    return [int(name[3:]) for name in names]


def bring_up(management, count, advertising):
    """Waits for `count` controllers and switches Low Energy and power on, bonding off.

    With `advertising`, the controllers can be dialed without bluetoothd.
    """
    for index in management.wait_for_indexes(count):
        management.set("le", index, 1)
        management.set("bondable", index, 0)
        management.set("power", index, 1)
        if advertising:
            management.set("connectable", index, 1)
            management.set("advertising", index, 1)


def run(arguments):
    management = Management()
    match arguments:
        case ["list"]:
            for index in management.indexes():
                address, settings = management.info(index)
                print(f"hci{index}", address, *settings)
        case ["connections"]:
            for index in management.indexes():
                for address, kind in management.connections(index):
                    print(f"hci{index}", address, ADDRESS_TYPES[kind])
        case ["disconnect", address, *names] if len(address.split(":")) == 6:
            if not management.disconnect(address.upper(), chosen(management, names)):
                raise LookupError(f"no link to {address}")
        case ["up", "--count", count, *rest] if rest in ([], ["--advertising"]):
            bring_up(management, int(count), bool(rest))
        case [setting, ("on" | "off") as value, *names] if setting in (*SETTERS, "advertising"):
            for index in chosen(management, names):
                management.set(setting, index, value == "on")
        case _:
            print(__doc__, file=sys.stderr)
            return 64
    return 0


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    try:
        return run(sys.argv[1:])
    except LookupError as error:
        print(f"mgmt: {error}", file=sys.stderr)
        return 68
    except (OSError, Refused, ValueError) as error:
        print(f"mgmt: {' '.join(sys.argv[1:])}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
