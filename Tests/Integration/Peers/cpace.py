"""CPace, suite CPACE-RISTR255-SHA512, written from draft-irtf-cfrg-cpace-21 on top of libsodium.

    cpace.py            compares the functions below with the draft's vectors

The functions are those of the draft, with their names there. `Run` is one side in the setting with an
initiator and a responder, and has the confirmations of section 10.4.
"""

import ctypes
import ctypes.util
import hashlib
import hmac

DSI = b"CPaceRistretto255"
# The block length of SHA-512 in bytes.
S_IN_BYTES = 128

sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
if sodium.sodium_init() < 0:
    raise SystemExit("libsodium cannot be initialised")


def encode_length(length):
    """LEB128."""
    encoded = b""
    while True:
        byte, length = length & 0x7F, length >> 7
        encoded += bytes([byte | 0x80 if length else byte])
        if not length:
            return encoded


def prepend_len(data):
    return encode_length(len(data)) + data


def lv_cat(*parts):
    return b"".join(prepend_len(part) for part in parts)


def generator_string(dsi, prs, ci, sid, s_in_bytes):
    zeros = max(0, s_in_bytes - 1 - len(prepend_len(prs)) - len(prepend_len(dsi)))
    return lv_cat(dsi, prs, bytes(zeros), ci, sid)


def calculate_generator(prs, ci, sid):
    string = generator_string(DSI, prs, ci, sid, S_IN_BYTES)
    element = ctypes.create_string_buffer(32)
    sodium.crypto_core_ristretto255_from_hash(element, hashlib.sha512(string).digest())
    return element.raw


def sample_scalar():
    scalar = ctypes.create_string_buffer(32)
    sodium.crypto_core_ristretto255_scalar_random(scalar)
    return scalar.raw


def scalar_mult_vfy(scalar, element):
    """The product, or None if the element does not decode or the product is the identity."""
    if len(scalar) != 32 or len(element) != 32:
        return None
    product = ctypes.create_string_buffer(32)
    if sodium.crypto_scalarmult_ristretto255(product, scalar, element) != 0:
        return None
    return product.raw


def transcript_ir(ya, ada, yb, adb):
    return lv_cat(ya, ada) + lv_cat(yb, adb)


class Run:
    """One side of a run. `share` is what it sends."""

    def __init__(self, is_initiator, prs, ci, sid, ada, adb, scalar=None):
        self.is_initiator = is_initiator
        self.sid, self.ada, self.adb = sid, ada, adb
        self.generator = calculate_generator(prs, ci, sid)
        self.scalar = scalar or sample_scalar()
        self.share = scalar_mult_vfy(self.scalar, self.generator)

    def finish(self, peer_share):
        """Ends the run. False if the peer's share is refused; otherwise `isk`, `ta` and `tb` are the
        key, the initiator's confirmation and the responder's."""
        k = scalar_mult_vfy(self.scalar, peer_share)
        if k is None or peer_share == self.share:
            return False
        ya, yb = (self.share, peer_share) if self.is_initiator else (peer_share, self.share)
        self.isk = hashlib.sha512(
            lv_cat(DSI + b"_ISK", self.sid, k)
            + transcript_ir(ya, self.ada, yb, self.adb)).digest()
        mac_key = hashlib.sha512(b"CPaceMac" + self.sid + self.isk).digest()
        self.ta = hmac.digest(mac_key, lv_cat(ya, self.ada), "sha512")
        self.tb = hmac.digest(mac_key, lv_cat(yb, self.adb), "sha512")
        return True


def check():
    """Compares with the vectors of the draft's appendix B.3."""
    channel = bytes.fromhex("0b415f696e69746961746f720b425f726573706f6e646572")
    session = bytes.fromhex("7e4b4791d6a8ef019b936c79fb7f2c57")
    common = (b"Password", channel, session, b"ADa", b"ADb")
    initiator = Run(True, *common, bytes.fromhex(
        "da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08"))
    responder = Run(False, *common, bytes.fromhex(
        "d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d"))
    assert initiator.generator.hex() == (
        "222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56")
    assert initiator.share.hex() == (
        "d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157")
    assert responder.share.hex() == (
        "3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258")
    key = ("b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd"
           "2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447")
    for run, share in (initiator, responder.share), (responder, initiator.share):
        assert run.finish(share) and run.isk.hex() == key
    assert initiator.ta == responder.ta and initiator.tb == responder.tb
    assert initiator.ta != initiator.tb

    # The draft's product, and what is refused: bytes that encode no element, the identity, and no bytes.
    scalar = bytes.fromhex("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05")
    element = bytes.fromhex("2c3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c")
    product = bytes.fromhex("7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e")
    assert scalar_mult_vfy(scalar, element) == product
    for refused in b"\x2b" + element[1:], b"\xff" * 31 + b"\x7f", bytes(32), b"":
        assert scalar_mult_vfy(scalar, refused) is None
    assert not initiator.finish(initiator.share) and not initiator.finish(bytes(32))
    print("the draft's vectors agree")


if __name__ == "__main__":
    check()
