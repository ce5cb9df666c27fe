"""A message bus for one program, with a bluetoothd that misbehaves.

    fake_bluetoothd.py SOCKET BEHAVIOUR

    refuse     bluetoothd's objects may not be listed
    end        bluetoothd ends during the listing
    hang       the listing gets no answer
    leave      bluetoothd gives up its name on the bus during the listing, and answers all the same
    deaf       a device offers the byte stream over GATT, and a subscription gets no answer
    absurd     as deaf, and the MTU is negative
    paired     as deaf, and the device is paired during the subscription
    flapping   as paired, but the link is lost and comes back before the pairing
    twin       as paired, but another, paired device has the address of the device
    shared     as deaf, but another program connects to the device: each Connect fails, and after the second one
               the device is connected
    present    as paired, but the device is connected before the dial
    crowded    as deaf, but bluetoothd lists 16 other devices with 256 services and characteristics each, and
               adds those of the device when it connects
    known      as deaf, but the device was paired before
    silent:M   as deaf, and the first call of the method M and all later calls get no answer
    pairable   the adapter is pairable, and there is no device
    hidden     a device is missing in the first listing, and a scan hears it; the second listing has it
    heard      a scan makes bluetoothd add a device of unknown signal strength
    stored     as heard, but the device is paired, and bluetoothd has not heard it
    unknown    a device that is not among the objects connects, and opens a stream of the program's service

Standard error gets `listening` when the program can connect, a line for each call to bluetoothd, with its
member and path, and `notified` when the program notifies the devices that have subscribed to it.
"""

import base64
import socket
import struct
import sys

SERVICE = "6f1d0a3c-9c5e-4b7e-8d2f-2a4c6e8f0b1d"
TO_LISTENER = "7903d497-2cff-424e-8d0c-f3dfa6249c8a"
TO_DIALER = "d1422866-955a-43b7-90d4-07c24725ce48"
STREAM = [(TO_LISTENER, "write-without-response"), (TO_DIALER, "notify")]
OTHER = "7a2e1b4d-0d6f-4c8f-9e30-3b5d7f901c2e"

# The behaviours with which the device is paired during the subscription.
PAIRING = ("paired", "flapping", "twin", "present")

CALL, REPLY, ERROR, SIGNAL = 1, 2, 3, 4
NO_REPLY_EXPECTED = 1
# The header fields, and the types of their values.
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_SERIAL, DESTINATION, SENDER, SIGNATURE = range(1, 9)
FIELD_TYPES = dict(zip(range(1, 9), "osssussg"))
NUMBERS = {"y": "B", "b": "I", "n": "h", "q": "H", "u": "I", "x": "q"}

BUS, BLUETOOTHD, PROGRAM = "org.freedesktop.DBus", ":1.1", ":1.2"
PROPERTIES = "org.freedesktop.DBus.Properties"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
ADAPTER = "/org/bluez/hci0"
DEVICE = ADAPTER + "/dev_AA_BB_CC_DD_EE_FF"


class Writer:
    """Writes D-Bus values. A dictionary is a Python dictionary, and a variant a tuple (TYPE, VALUE)."""

    def __init__(self):
        self.data = bytearray()

    def align(self, size):
        self.data += bytes(-len(self.data) % size)

    def number(self, form, value):
        self.align(struct.calcsize(form))
        self.data += struct.pack("<" + form, value)

    def write(self, kind, value):
        if kind in NUMBERS:
            self.number(NUMBERS[kind], value)
        elif kind in ("s", "o"):
            self.number("I", len(value))
            self.data += value.encode() + b"\0"
        elif kind == "g":
            self.data += bytes([len(value)]) + value.encode() + b"\0"
        elif kind == "v":
            self.write("g", value[0])
            self.write(*value)
        elif kind[0] == "{":
            self.align(8)
            self.write(kind[1], value[0])
            self.write(kind[2:-1], value[1])
        else:
            self.number("I", 0)
            length_at = len(self.data) - 4
            self.align(8 if kind[1] == "{" else 1)
            start = len(self.data)
            for element in value.items() if kind[1] == "{" else value:
                self.write(kind[1:], element)
            struct.pack_into("<I", self.data, length_at, len(self.data) - start)


def text(data, at):
    """Reads the text whose length, in four bytes, is at the position `at` after padding. Returns the text and
    the position after it."""
    at += -at % 4
    end = at + 4 + int.from_bytes(data[at:at + 4], "little")
    return data[at + 4:end].decode(), end + 1


class Message:
    """A message from the program, of which only the header and the first text of the body are read."""

    def __init__(self, read):
        fixed = read(16)
        self.kind, self.flags = fixed[1], fixed[2]
        body_length, self.serial, length = struct.unpack("<III", fixed[4:])
        self.fields = {}
        data, at = read(length + -length % 8), 0
        while at < length:
            at += -at % 8
            code, kind = data[at], chr(data[at + 2])
            at += 4
            if kind == "u":
                self.fields[code], at = int.from_bytes(data[at:at + 4], "little"), at + 4
            elif kind == "g":
                end = at + 1 + data[at]
                self.fields[code], at = data[at + 1:end].decode(), end + 1
            else:
                self.fields[code], at = text(data, at)
        body = read(body_length)
        begins_with_text = self.fields.get(SIGNATURE, "").startswith(("s", "o"))
        self.first_text = text(body, 0)[0] if begins_with_text else ""


class FakeBluetoothd:
    def __init__(self, path, behaviour):
        self.behaviour = behaviour
        self.connects = 0
        self.serial = 0
        self.application = None
        self.is_silent = False
        self.listings = 0
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        say("listening")
        self.socket = listener.accept()[0]
        self.authenticate()
        # The answers to a message leave in one piece, so that the program takes them at once.
        self.output = self.socket.makefile("wb")

    def authenticate(self):
        """The server's side of the D-Bus specification's "Authentication Protocol"."""
        self.read(1)
        line = b""
        while line != b"BEGIN":
            line = b""
            while not line.endswith(b"\r\n"):
                line += self.read(1)
            line = line.strip()
            if line.startswith(b"AUTH"):
                self.socket.sendall(b"DATA\r\n")
            elif line == b"DATA":
                self.socket.sendall(b"OK " + b"0" * 32 + b"\r\n")
            elif line != b"BEGIN":
                self.socket.sendall(b"ERROR\r\n")

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def run(self):
        while True:
            self.take(Message(self.read))
            self.output.flush()

    def send(self, kind, fields, *values, sender=BLUETOOTHD):
        self.serial += 1
        body = Writer()
        for value in values:
            body.write(*value)
        fields = fields | {SENDER: sender, DESTINATION: PROGRAM}
        if values:
            fields[SIGNATURE] = "".join(kind for kind, _ in values)
        header = Writer()
        header.data += struct.pack("<cBBBII", b"l", kind, 0, 1, len(body.data), self.serial)
        header.number("I", 0)
        for code, value in fields.items():
            header.align(8)
            header.data += bytes([code])
            header.write("v", (FIELD_TYPES[code], value))
        struct.pack_into("<I", header.data, 12, len(header.data) - 16)
        header.align(8)
        self.output.write(header.data + body.data)

    def reply(self, call, *values, sender=BLUETOOTHD):
        if not call.flags & NO_REPLY_EXPECTED:
            self.send(REPLY, {REPLY_SERIAL: call.serial}, *values, sender=sender)

    def fail(self, call, name, sender, text="refused"):
        name = name if "." in name else "org.freedesktop.DBus.Error." + name
        fields = {REPLY_SERIAL: call.serial, ERROR_NAME: name}
        self.send(ERROR, fields, ("s", text), sender=sender)

    def change(self, properties):
        """Signals that properties of the device have changed."""
        fields = {PATH: DEVICE, INTERFACE: PROPERTIES, MEMBER: "PropertiesChanged"}
        self.send(
            SIGNAL, fields, ("s", "org.bluez.Device1"), ("a{sv}", properties), ("as", []))

    def take(self, message):
        member, path = message.fields.get(MEMBER, ""), message.fields.get(PATH, "")
        if message.kind == SIGNAL and message.first_text == "org.bluez.GattCharacteristic1":
            say("notified")
        if message.kind != CALL:
            return
        if message.fields.get(DESTINATION) == BUS:
            names = {"Hello": PROGRAM, "GetNameOwner": BLUETOOTHD}
            values = [("s", names[member])] if member in names else []
            return self.reply(message, *values, sender=BUS)
        say(f"{member} {path}")
        self.is_silent |= self.behaviour == f"silent:{member}"
        if self.is_silent:
            return
        if member == "GetManagedObjects":
            self.list_objects(message)
        elif member == "GetAll" and self.behaviour == "unknown":
            self.reply(message, ("a{sv}", device(True)))
            self.open_stream()
        elif member == "GetAll":
            self.reply(message, ("a{sv}", self.device()))
        elif member == "Get":
            self.reply(message, ("v", ("x", -2**63) if self.behaviour == "absurd" else ("q", 517)))
        elif member == "Connect" and self.behaviour == "shared":
            self.connects += 1
            self.fail(message, "org.bluez.Error.Failed", BLUETOOTHD, "Operation already in progress")
            if self.connects == 1:
                return
        elif member != "StartNotify":
            self.reply(message)
        if member == "RegisterApplication":
            self.application = message.first_text
        elif member == "RegisterAdvertisement":
            self.change({"Connected": ("b", True)})
        elif member == "StartDiscovery" and self.behaviour in ("heard", "stored"):
            self.add_device(self.behaviour == "stored")
        elif member == "StartDiscovery":
            for signal in range(-42, -39):
                self.change({"RSSI": ("n", signal)})
        elif member == "Connect":
            self.change({"Connected": ("b", True)})
            if self.behaviour == "crowded":
                for path, interfaces in parts(DEVICE, SERVICE, STREAM).items():
                    self.add(path, interfaces)
            self.change({"ServicesResolved": ("b", True)})
        elif member == "StartNotify":
            if self.behaviour == "flapping":
                self.change({"Connected": ("b", False)})
                self.change({"Connected": ("b", True)})
            if self.behaviour in PAIRING:
                self.change({"Paired": ("b", True), "Bonded": ("b", True)})
        elif member == "RemoveDevice":
            self.remove_device()

    def device(self):
        """The properties of the device before a dial."""
        return device(self.behaviour == "present") | {"Paired": ("b", self.behaviour == "known")}

    def remove_device(self):
        fields = {PATH: "/", INTERFACE: OBJECT_MANAGER, MEMBER: "InterfacesRemoved"}
        self.send(SIGNAL, fields, ("o", DEVICE), ("as", ["org.bluez.Device1"]))

    def list_objects(self, call):
        self.listings += 1
        if self.behaviour == "refuse":
            self.fail(call, "AccessDenied", BUS)
        elif self.behaviour == "end":
            self.fail(call, "NoReply", BUS)
        elif self.behaviour != "hang":
            if self.behaviour == "leave":
                self.give_up_name()
            self.reply(call, ("a{oa{sa{sv}}}", self.objects()))
            if self.behaviour == "hidden" and self.listings == 2:
                self.change({"RSSI": ("n", -39)})

    def objects(self):
        """What bluetoothd lists now."""
        adapter = {
            "Powered": ("b", True), "Address": ("s", "11:22:33:44:55:66"),
            "Pairable": ("b", self.behaviour == "pairable")}
        listed = {
            ADAPTER: {
                "org.bluez.Adapter1": adapter, "org.bluez.GattManager1": {},
                "org.bluez.LEAdvertisingManager1": {}}}
        has_device = (
            self.behaviour in ("deaf", "absurd", "crowded", "known", "shared") + PAIRING
            or self.behaviour.startswith("silent:")
            or self.behaviour == "hidden" and self.listings > 1)
        if has_device:
            listed[DEVICE] = {"org.bluez.Device1": self.device()}
        if self.behaviour == "twin":
            other = {"Address": ("s", "AA:BB:CC:DD:EE:FF"), "Paired": ("b", True)}
            listed[ADAPTER + "/dev_00_00_00_00_00_00"] = {"org.bluez.Device1": other}
        if self.behaviour == "crowded":
            for number in range(16):
                other = ADAPTER + f"/dev_00_00_00_00_00_{number:02X}"
                listed[other] = {"org.bluez.Device1": {"Connected": ("b", False)}}
                listed |= parts(other, OTHER, [(OTHER, "read")] * 255)
        elif has_device:
            listed |= parts(DEVICE, SERVICE, STREAM)
        return listed

    def give_up_name(self):
        fields = {PATH: "/org/freedesktop/DBus", INTERFACE: BUS, MEMBER: "NameOwnerChanged"}
        names = [("s", "org.bluez"), ("s", BLUETOOTHD), ("s", "")]
        self.send(SIGNAL, fields, *names, sender=BUS)

    def add(self, path, interfaces):
        fields = {PATH: "/", INTERFACE: OBJECT_MANAGER, MEMBER: "InterfacesAdded"}
        self.send(SIGNAL, fields, ("o", path), ("a{sa{sv}}", interfaces))

    def add_device(self, is_paired):
        self.add(DEVICE, {"org.bluez.Device1": device(False) | {"Paired": ("b", is_paired)}})

    def open_stream(self):
        fields = {
            PATH: self.application + "/service/characteristic0",
            INTERFACE: "org.bluez.GattCharacteristic1", MEMBER: "WriteValue"}
        opening = bytes.fromhex("01beef000000200101fc")
        self.send(CALL, fields, ("ay", opening), ("a{sv}", {"device": ("o", DEVICE)}))


def device(is_connected):
    """The properties of the device, whose name is a payload: no PSM, a stream over GATT, Noise."""
    payload = bytes([0x10 | 4 | 2, 0, 0, 0, 0, 1])
    return {
        "Address": ("s", "AA:BB:CC:DD:EE:FF"), "AddressType": ("s", "random"), "Paired": ("b", False),
        "Connected": ("b", is_connected), "ServicesResolved": ("b", is_connected),
        "UUIDs": ("as", [SERVICE]), "Name": ("s", base64.urlsafe_b64encode(payload).decode())}


def parts(path, service, characteristics):
    """The objects of a device's service, and of the service's characteristics."""
    service_path = path + "/service0001"
    found = {service_path: {"org.bluez.GattService1": {"UUID": ("s", service)}}}
    for number, (uuid, flag) in enumerate(characteristics):
        found[service_path + f"/char{number:04x}"] = {
            "org.bluez.GattCharacteristic1": {"UUID": ("s", uuid), "Flags": ("as", [flag])}}
    return found


def say(line):
    print(line, file=sys.stderr, flush=True)


try:
    FakeBluetoothd(*sys.argv[1:]).run()
except (EOFError, ConnectionError):
    pass
