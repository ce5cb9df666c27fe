"""Devices of Bumble, an independent Bluetooth stack, beside an adapter of the kernel.

    bumble_peer.py peer SERVICE PROTOCOL    advertises the service with the characteristic that Apple
                                            defines, and listens on the PSM in its value. Answers
                                            each Noise message with the message's bytes reversed
    bumble_peer.py impostor SERVICE PROTOCOL
                                            like `peer`, but until the first line of standard input
                                            another service answers on the PSM
    bumble_peer.py pairing SERVICE WHAT     like `peer`, but the dialer has to pair, since the channel or
                                            the characteristic, whichever WHAT names, requires
                                            encryption. Advertises until it is paired
    bumble_peer.py central SERVICE          finds an advertiser of the service, and reads its PSM
    bumble_peer.py flood SERVICE COUNT      after the first line of standard input, lets the adapter
                                            hear COUNT forged advertisements

The kernel gets a Bumble controller through /dev/vhci; a line `adapter hciN` names its adapter. Each
event is a line on standard output. A line of standard input ends the program; for `impostor` and
`flood` it is the second line.
"""

import asyncio
import base64
import os
import random
import struct
import sys
import time

from bumble import hci, l2cap
from bumble.controller import Controller
from bumble.core import UUID, AdvertisingData
from bumble.device import Device, Peer
from bumble.gatt import Characteristic, CharacteristicValue, Service
from bumble.hci import Address
from bumble.host import Host
from bumble.l2cap import LeCreditBasedChannelSpec
from bumble.link import LocalLink
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport import open_transport
from noise.connection import Keypair, NoiseConnection

PSM_CHARACTERISTIC = UUID("ABDD3056-28FA-441D-A470-55A75A52553A")
KERNEL_ADDRESS = Address("00:BB:00:00:00:01", Address.PUBLIC_DEVICE_ADDRESS)
DEVICE_ADDRESS = Address("C3:BB:00:00:00:02")  # a static random address
# As on Apple's and Google's platforms. These values keep SDUs small, since the controller's packets are
# small.
CHANNEL = dict(mtu=2048, mps=247, max_credits=16)


class KernelController(Controller):
    """The kernel's controller. Its links send with another PHY than they receive with."""

    def on_hci_le_read_phy_command(self, command):
        answer = super().on_hci_le_read_phy_command(command)
        answer.tx_phy = hci.HCI_LE_2M_PHY
        return answer


class Link(LocalLink):
    """A link on which the kernel's controller has a public address; Bumble's LocalLink assumes that
    each controller has a random address."""

    kernel = None

    def send_acl_data(self, sender_controller, destination_address, transport, data):
        source = (
            KERNEL_ADDRESS if sender_controller is self.kernel
            else sender_controller.random_address)
        for controller in self.controllers:
            if controller is not sender_controller:
                asyncio.get_running_loop().call_soon(
                    controller.on_link_acl_data, source, transport, data)


def say(*words):
    print(*words, flush=True)


def adapters():
    return set(os.listdir("/sys/class/bluetooth"))


async def add_kernel_controller(link):
    """Gives the kernel a controller on the link, and waits for the kernel's adapter. Returns the
    controller."""
    before = adapters()
    transport = await open_transport("vhci")
    controller = KernelController(
        "kernel", host_source=transport.source, host_sink=transport.sink, link=link,
        public_address=KERNEL_ADDRESS)
    # With these features the kernel waits for the enhanced connection event, which Bumble's
    # controller does not send: the kernel would give up each link four seconds after its start.
    controller.le_features &= ~(
        hci.LeFeatureMask.LL_PRIVACY | hci.LeFeatureMask.LE_EXTENDED_ADVERTISING)
    link.kernel = controller
    while not (fresh := adapters() - before):
        await asyncio.sleep(0.05)
    say("adapter", *fresh)
    return controller


async def bumble_device(link):
    controller = Controller("own", link=link)
    host = Host()
    host.controller = controller
    device = Device(name="bumble", address=DEVICE_ADDRESS, host=host)
    await device.power_on()
    return device


class NoisePeer:
    """The responder of a direct channel, in which two bytes of length precede each message."""

    def __init__(self, protocol, channel):
        self.noise = NoiseConnection.from_name(protocol.encode())
        self.noise.set_as_responder()
        self.noise.set_keypair_from_private_bytes(Keypair.STATIC, bytes(range(1, 33)))
        self.noise.start_handshake()
        self.channel = channel
        self.buffer = b""
        self.count = 0
        channel.sink = self.take

    def take(self, data):
        self.buffer += bytes(data)
        while len(self.buffer) >= 2:
            (length,) = struct.unpack_from(">H", self.buffer)
            if len(self.buffer) < 2 + length:
                return
            message, self.buffer = self.buffer[2 : 2 + length], self.buffer[2 + length :]
            self.handle(message)

    def handle(self, message):
        if not self.noise.handshake_finished:
            self.noise.read_message(message)
            if not self.noise.handshake_finished:
                self.send(self.noise.write_message())
            return
        plaintext = bytes(self.noise.decrypt(message))
        self.count += len(plaintext)
        self.send(self.noise.encrypt(plaintext[::-1]))
        if not plaintext:
            say("exchanged", self.count)

    def send(self, message):
        self.channel.write(struct.pack(">H", len(message)) + bytes(message))


class OtherService:
    """Another service on the same PSM, which answers each SDU with random bytes."""

    def __init__(self, channel):
        say("opened", f"{time.monotonic():.3f}")
        channel.sink = lambda data: channel.write(random.randbytes(40))


async def peer(link, service, protocol, takeover=None):
    """Serves channels with NoisePeer. If the future `takeover` is given, channels that open before this
    future is done get OtherService."""
    device = await bumble_device(link)
    channels = []

    def opened(channel):
        # Kept here, because no other reference exists.
        channels.append(
            NoisePeer(protocol, channel) if takeover is None or takeover.done() else OtherService(channel))

    server = device.create_l2cap_server(
        spec=LeCreditBasedChannelSpec(psm=0x95, **CHANNEL), handler=opened)
    value = struct.pack("<H", server.psm)
    device.add_service(Service(service, [
        Characteristic(
            PSM_CHARACTERISTIC, Characteristic.Properties.READ, Characteristic.READABLE,
            CharacteristicValue(read=lambda _: value))]))
    await advertise(device, service, auto_restart=True)
    say("advertising", hex(server.psm))


async def advertise(device, service, auto_restart):
    device.advertising_data = bytes(AdvertisingData([
        (AdvertisingData.FLAGS, bytes([0x06])),
        (AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS, service.to_bytes())]))
    await device.start_advertising(
        auto_restart=auto_restart, advertising_interval_min=100, advertising_interval_max=100)


async def pairing(link, service, what):
    device = await bumble_device(link)
    device.pairing_config_factory = lambda _: PairingConfig(
        mitm=False, delegate=PairingDelegate(PairingDelegate.NO_OUTPUT_NO_INPUT))
    paired = asyncio.Event()
    tasks = []

    def pairing_ended(_):
        say("paired")
        paired.set()

    def disconnected(_):
        say("disconnected")
        if not paired.is_set():
            tasks.append(asyncio.ensure_future(advertise(device, service, auto_restart=False)))

    def connected(connection):
        connection.on("pairing", pairing_ended)
        connection.on("disconnection", disconnected)

    device.on("connection", connected)
    server = device.create_l2cap_server(
        spec=LeCreditBasedChannelSpec(psm=0x95, **CHANNEL), handler=lambda _: say("opened"))
    permissions = Characteristic.READABLE
    if what == "characteristic":
        permissions |= Characteristic.Permissions.READ_REQUIRES_ENCRYPTION
    else:
        manager = device.l2cap_channel_manager
        response = l2cap.L2CAP_LE_Credit_Based_Connection_Response

        def refuse(connection, channel, request):
            manager.send_control_frame(connection, channel, response(
                identifier=request.identifier, destination_cid=0, mtu=23, mps=23, initial_credits=0,
                result=response.Result.CONNECTION_REFUSED_INSUFFICIENT_AUTHENTICATION))

        manager.on_l2cap_le_credit_based_connection_request = refuse
    device.add_service(Service(service, [
        Characteristic(
            PSM_CHARACTERISTIC, Characteristic.Properties.READ, permissions,
            CharacteristicValue(read=lambda _: struct.pack("<H", server.psm)))]))
    await advertise(device, service, auto_restart=False)
    say("advertising", hex(server.psm))


async def central(link, service):
    device = await bumble_device(link)
    found = asyncio.get_running_loop().create_future()

    def heard(advertisement):
        uuid_lists = advertisement.data.get_all(
            AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS)
        if any(service in uuids for uuids in uuid_lists) and not found.done():
            found.set_result(advertisement.address)

    device.on("advertisement", heard)
    await device.start_scanning(filter_duplicates=False)
    say("scanning")
    address = await found
    await device.stop_scanning()
    connection = await device.connect(address)
    remote = Peer(connection)
    await remote.discover_services([service])
    (remote_service,) = remote.get_services_by_uuid(service)
    await remote_service.discover_characteristics()
    (characteristic,) = remote_service.get_characteristics_by_uuid(PSM_CHARACTERISTIC)
    say("read", bytes(await characteristic.read_value()).hex())
    await connection.disconnect()


def ad_structure(ad_type, data):
    return bytes([len(data) + 1, ad_type]) + data


def forged_advertisements(service, count):
    """Yields `count` forged advertisements of the service, each as its sender's address and its data."""
    source = random.Random(7)
    uuid = ad_structure(0x07, service.to_bytes())
    for index in range(count):
        address = source.randbytes(4) + bytes([index >> 8 & 0xFF, 0xC0 | index & 0x3F])
        if index % 8 == 7:
            address = bytes([1, 2, 3, 4, 5, 0xC0])  # one device, whose tag is always new
        tag = [b"\0" * 4, b"\xff" * 4, b"copy", source.randbytes(4)][index % 4]
        payload = bytes([0x1A, 0x80 | index & 0x7F]) + tag
        kind = index % 5
        if kind == 0:
            data = uuid + ad_structure(0x09, base64.urlsafe_b64encode(payload))
        elif kind == 1:
            data = ad_structure(0x21, service.to_bytes() + payload)
        elif kind == 2:
            data = uuid + ad_structure(0xFF, b"\xff\xff" + payload)
        elif kind == 3:  # payloads of 0 to 12 bytes
            data = ad_structure(0x21, service.to_bytes() + source.randbytes(index % 13))
        else:
            data = uuid + ad_structure(0x09, source.randbytes(index % 11))
        yield address, data[:31]


async def flood(link, service, count, controller):
    # The controller reports the advertisements to the kernel, and no device sends them: a device
    # could not use so many addresses.
    for index, (address, data) in enumerate(forged_advertisements(service, int(count))):
        controller.send_hci_packet(hci.HCI_LE_Advertising_Report_Event([
            hci.HCI_LE_Advertising_Report_Event.Report(
                event_type=0, address_type=Address.RANDOM_DEVICE_ADDRESS,
                address=Address(address, Address.RANDOM_DEVICE_ADDRESS), data=data,
                rssi=-40 - index % 30)]))
        await asyncio.sleep(0.004)
    say("flooded", count)


async def main():
    command, service, *rest = sys.argv[1:]
    service = UUID(service)
    link = Link()
    controller = await add_kernel_controller(link)
    line = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if command == "peer":
        await peer(link, service, *rest)
    elif command == "impostor":
        await peer(link, service, *rest, takeover=line)
        await line
        line = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    elif command == "pairing":
        await pairing(link, service, *rest)
    elif command == "central":
        await central(link, service)
    else:
        # Begins on a line of standard input, so that a scanner can start first.
        await line
        line = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        await flood(link, service, *rest, controller)
    await line
    os._exit(0)


asyncio.run(main())
