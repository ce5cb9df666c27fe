#!/usr/bin/python3
"""lab/packets.py: prints a Bluetooth controller's counters as one line of JSON.

    packets.py HCI          for example: packets.py hci0

{"acl_tx": 12, "acl_rx": 3, "cmd_tx": 40, "byte_tx": 2296, ...}: what the host gave to
the controller (tx) and got from it (rx) since the controller appeared. byte_tx includes
the bytes of commands; byte_rx stays 0 for a virtual controller. Needs no privilege. Exits
64 on wrong usage, and 68 when the counters cannot be read, as for an absent controller.

A virtual controller takes 192 bytes in an ACL packet, so an L2CAP segment (MPS) has at most
188 bytes. An SDU of n bytes is p = ceil((n + 2) / 188) packets and n + 2 + 9 * p bytes: 2 for
the SDU's length and, in each packet, 1 for its type, 4 of ACL header and 4 of L2CAP header.
The receiver answers each SDU with one packet of credits, 17 bytes.
"""

import fcntl
import json
import socket
import struct
import sys

HCIGETDEVINFO = 0x800448D3
# struct hci_dev_info: 92 bytes, the last 40 of them struct hci_dev_stats
INFO_SIZE, STATISTICS_OFFSET = 92, 52
NAMES = "err_rx err_tx cmd_tx evt_rx acl_tx acl_rx sco_tx sco_rx byte_rx byte_tx".split()


def counters(index):
    """The counters of controller `index`, by name; raises an OSError when they cannot be read."""
    info = bytearray(struct.pack("<H", index).ljust(INFO_SIZE, b"\0"))
    with socket.socket(socket.AF_BLUETOOTH, socket.SOCK_RAW, socket.BTPROTO_HCI) as control:
        fcntl.ioctl(control, HCIGETDEVINFO, info)
    return dict(zip(NAMES, struct.unpack_from("<10I", info, STATISTICS_OFFSET)))


def main():
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if not (name.startswith("hci") and name[3:].isdecimal()):
        print(__doc__, file=sys.stderr if name not in ("--help", "-h") else sys.stdout)
        return 0 if name in ("--help", "-h") else 64
    try:
        print(json.dumps(counters(int(name[3:]))))
    except OSError as error:
        print(f"packets: cannot read the counters of {name}: {error.strerror}", file=sys.stderr)
        return 68
    return 0


if __name__ == "__main__":
    sys.exit(main())
