#!/usr/bin/python3
"""Tests/Lab/machine.py: the part of lab/test that runs in the guest.

    machine.py process|channels|pairs|bluetoothd

Writes one line for each check to the file `checks` in the folder LAB_OUT: "ok NAME", or
"not ok NAME: " and the error.
"""

import ctypes
import hashlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time

LAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab")
sys.path.insert(0, LAB)
from mgmt import Management, address_bytes  # noqa: E402
from packets import counters  # noqa: E402

SOL_BLUETOOTH, BT_RCVMTU = 274, 13
LE_PUBLIC = 1
MTU = 4096
PSM = 0x90
NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)


def check(name):
    """A decorator that runs the function where it is defined, and records whether it succeeded."""

    def run(function):
        try:
            function()
            line = f"ok {name}"
        except Exception as error:
            line = f"not ok {name}: {type(error).__name__} {error}".replace("\n", " ")
        with open(os.environ["LAB_OUT"] + "/checks", "a") as checks:
            print(line, file=checks)
        return function

    return run


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got!r} is not {wanted!r}")


def call(function, channel, address, psm):
    """Calls bind or connect with an LE address, which Python's own bind and connect cannot express."""
    where = struct.pack("<HH6sHBx", socket.AF_BLUETOOTH, psm, address_bytes(address), 0, LE_PUBLIC)
    if function(channel.fileno(), where, len(where)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def bound_socket(address, psm):
    channel = socket.socket(socket.AF_BLUETOOTH, socket.SOCK_SEQPACKET, socket.BTPROTO_L2CAP)
    call(libc.bind, channel, address, psm)
    channel.setsockopt(SOL_BLUETOOTH, BT_RCVMTU, struct.pack("<H", MTU))
    return channel


def pair(dialing, listening, psm=PSM):
    """Opens a channel between the controllers with these addresses; returns the dialer's and the
    acceptor's end."""
    with bound_socket(listening, psm) as listener:
        listener.listen(1)
        listener.settimeout(10)
        dialer = bound_socket(dialing, 0)
        call(libc.connect, dialer, listening, psm)
        acceptor, _ = listener.accept()
    for end in (dialer, acceptor):
        end.settimeout(10)
    return dialer, acceptor


def transfer(sender, receiver, size, count):
    """Sends `count` SDUs of `size` random bytes, and expects that the same bytes arrive."""
    sent, received = hashlib.sha256(), hashlib.sha256()

    def send():
        for _ in range(count):
            data = os.urandom(size)
            sent.update(data)
            sender.send(data)

    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(count):
        received.update(receiver.recv(MTU))
    thread.join()
    expect(received.hexdigest(), sent.hexdigest())


def cut(address):
    """Cuts the link of the controller with this address, by a command to the controller at the link's other end."""
    management = Management()
    expect(management.disconnect(address, management.indexes()), True)


def eventually(read, wanted):
    """Expects that `read` returns the wanted value within five seconds."""
    deadline = time.monotonic() + 5
    while (got := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    expect(got, wanted)


def addresses():
    management = Management()
    return [management.info(index)[0] for index in management.indexes()]


def process():
    """Writes what lab/test compares: the arguments to a file, bytes of every value to standard output, and
    a line to standard error."""
    arguments = sys.argv[2:]
    with open(os.environ["LAB_OUT"] + "/arguments", "wb") as file:
        file.write(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
    output = bytes(range(256)) * 512
    os.write(2, b"to standard error\n")
    for start in range(0, len(output), 4096):
        os.write(1, output[start : start + 4096])
    check("standard input is empty")(lambda: expect(os.read(0, 1), b""))
    check("the working directory is the caller's")(lambda: expect(os.getcwd(), os.environ["LAB_TEST_DIRECTORY"]))
    check("the command is root")(lambda: expect(os.geteuid(), 0))
    check("SWIFT and BLESEC_ variables are passed on")(
        lambda: expect((os.environ.get("SWIFT_LAB"), os.environ.get("BLESEC_LAB")), ("a b", "c\nd"))
    )
    subprocess.Popen(["sleep", "1000"])  # the machine must stop although this still runs
    sys.exit(7)


def channels():
    first, second = addresses()

    @check("two controllers are powered, and advertise")
    def _():
        management = Management()
        for index in management.indexes():
            settings = management.info(index)[1]
            for setting in ("powered", "le", "connectable", "advertising"):
                expect((setting, setting in settings), (setting, True))

    @check("a channel between two controllers carries bytes in both directions")
    def _():
        dialer, acceptor = pair(first, second)
        with dialer, acceptor:
            transfer(dialer, acceptor, 4096, 32)
            transfer(acceptor, dialer, 1000, 32)

    @check("the second controller can dial the first")
    def _():
        dialer, acceptor = pair(second, first)
        with dialer, acceptor:
            transfer(dialer, acceptor, 4096, 8)

    @check("an SDU of n bytes takes ceil((n + 2) / 188) packets, and one packet of credits in return")
    def _():
        dialer, acceptor = pair(first, second)
        with dialer, acceptor:
            for size in (1, 186, 187, 374, 375, 672, 4096):
                packets = -(-(size + 2) // 188)
                before = counters(0)["acl_tx"], counters(1)["acl_tx"]
                transfer(dialer, acceptor, size, 10)
                wanted = before[0] + 10 * packets, before[1] + 10
                eventually(lambda: (counters(0)["acl_tx"], counters(1)["acl_tx"]), wanted)

    @check("mgmt disconnect cuts a channel at both ends")
    def _():
        dialer, acceptor = pair(first, second)
        with dialer, acceptor:
            tool = os.path.join(LAB, "mgmt.py")
            subprocess.run(["/usr/bin/python3", "-IS", tool, "disconnect", second], check=True)
            for end in (dialer, acceptor):
                try:
                    raise AssertionError(f"received {end.recv(MTU)!r}")
                except ConnectionResetError:
                    pass

    @check("a peer can be dialed again immediately after the cut")
    def _():
        dialer, acceptor = pair(first, second)
        with dialer, acceptor:
            transfer(dialer, acceptor, 1000, 2)

    @check("a channel can be opened and used as the user `nobody`")
    def _():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            dialer, acceptor = pair(first, second, PSM + 1)
            with dialer, acceptor:
                transfer(dialer, acceptor, 4096, 8)
        finally:
            os.setresuid(0, 0, 0)


def pairs():
    known = addresses()
    check("four controllers")(lambda: expect(len(set(known)), 4))

    @check("any controller dials any other")
    def _():
        for dialing in known:
            for listening in known:
                if dialing != listening:
                    dialer, acceptor = pair(dialing, listening)
                    with dialer, acceptor:
                        transfer(dialer, acceptor, 1000, 2)
                        cut(listening)

    @check("two pairs have a channel each at the same time")
    def _():
        first, second = pair(known[0], known[1]), pair(known[2], known[3])
        for dialer, acceptor in (first, second, first):
            transfer(dialer, acceptor, 1000, 2)


def bluetoothd():
    @check("org.bluez has both adapters, powered")
    def _():
        answer = subprocess.run(
            ["dbus-send", "--system", "--print-reply", "--dest=org.bluez", "/"]
            + ["org.freedesktop.DBus.ObjectManager.GetManagedObjects"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("/org/bluez/hci0", "/org/bluez/hci1"):
            expect((name, f'object path "{name}"' in answer), (name, True))
        powered = answer.replace("\n", " ").split('string "Powered"')[1:]
        expect([part.split("boolean ")[1].split()[0] for part in powered], ["true", "true"])

    @check("with bluetoothd, no controller advertises without a request")
    def _():
        management = Management()
        expect(["advertising" in management.info(index)[1] for index in management.indexes()], [False, False])


if __name__ == "__main__":
    {"process": process, "channels": channels, "pairs": pairs, "bluetoothd": bluetoothd}[sys.argv[1]]()
