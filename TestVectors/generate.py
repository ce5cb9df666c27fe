#!/usr/bin/env python3
"""Makes the vectors in `noise/`, `rekey.json` and `additional-keys.json` with other implementations of Noise.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python generate.py            writes the files
    venv/bin/python generate.py --check    makes the vectors, and compares them with the files
    venv/bin/python generate.py --replay FILE…   runs vectors of another implementation

dissononce makes every vector. If noiseprotocol knows the pattern, it must produce the same bytes in both
roles. Keys, prologues and payloads come from SHAKE-256 over a seed and the protocol's
name, so the files are the same on every machine.

dissononce differs from revision 34 of the specification in these points, which this script corrects:
  * CipherState.rekey() sets n to zero; the specification does not change n (section 11.3).
  * dissononce does not refuse n = 2^64 - 1, which is reserved (section 5.1).
  * In a psk handshake, dissononce does not mix the other side's `e` of a pre-message into the key (section 9.2).
  * dissononce allows one psk in a message, but psk0 and psk1 may be in the same message.
  * Its modifier fallback drops the pre-message that the pattern had before (section 10.2).
  * In a fallback, Split() gives the first key to the initiator, although it is the key of Bob, who
    writes first.
"""
import argparse
import hashlib
import hmac
import json
import pathlib
import pkgutil
import sys
import warnings

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import x448, x25519
from dissononce.cipher.aesgcm import AESGCMCipher
from dissononce.cipher.chachapoly import ChaChaPolyCipher
from dissononce.dh.keypair import KeyPair
from dissononce.dh.private import PrivateKey
from dissononce.dh.public import PublicKey
from dissononce.dh.x25519.x25519 import X25519DH
from dissononce.dh.x448.x448 import X448DH
from dissononce.hash.blake2b import Blake2bHash
from dissononce.hash.blake2s import Blake2sHash
from dissononce.hash.sha256 import SHA256Hash
from dissononce.hash.sha512 import SHA512Hash
from dissononce.processing.handshakepatterns import deferred, interactive, oneway
from dissononce.processing.handshakepatterns.handshakepattern import HandshakePattern
from dissononce.processing.impl import cipherstate, handshakestate, symmetricstate
from noise.connection import Keypair, NoiseConnection

SEED = b"vectors of noise revision 34, 1"
HERE = pathlib.Path(__file__).resolve().parent
CURVES = {"25519": (X25519DH, x25519.X25519PrivateKey, 32), "448": (X448DH, x448.X448PrivateKey, 56)}
CIPHERS = {"ChaChaPoly": ChaChaPolyCipher, "AESGCM": AESGCMCipher}
HASHES = {"SHA256": SHA256Hash, "SHA512": SHA512Hash, "BLAKE2s": Blake2sHash, "BLAKE2b": Blake2bHash}

WRITERS = ["init", "resp"]
OTHER = {"init": "resp", "resp": "init"}


class CipherState(cipherstate.CipherState):
    """dissononce's class, except that rekey() keeps n, and that the reserved n is refused."""

    def rekey(self):
        self._key = self._cipher.rekey(self._key)[:32]

    def encrypt_with_ad(self, ad, plaintext):
        assert self._nonce < 2**64 - 1, "nonce exhausted"
        return super().encrypt_with_ad(ad, plaintext)

    def decrypt_with_ad(self, ad, ciphertext):
        assert self._nonce < 2**64 - 1, "nonce exhausted"
        return super().decrypt_with_ad(ad, ciphertext)


symmetricstate.CipherState = CipherState


class SymmetricState(symmetricstate.SymmetricState):
    """dissononce's class, which also mixes `pre_message_ephemerals` into the key when it hashes them."""

    pre_message_ephemerals = ()

    def mix_hash(self, data):
        super().mix_hash(data)
        if data in self.pre_message_ephemerals:
            self.pre_message_ephemerals = tuple(
                key for key in self.pre_message_ephemerals if key != data)
            self.mix_key(data)


class HandshakeState(handshakestate.HandshakeState):
    """dissononce's class; in a psk handshake it also mixes the remote `e` of a pre-message into the key."""

    def initialize(self, pattern, initiator, prologue, **keys):
        remote = (
            pattern.responder_pre_message_pattern if initiator
            else pattern.initiator_pre_message_pattern)
        if "psk" in pattern.name and "e" in remote:
            self._symmetricstate.pre_message_ephemerals = (keys["re"].data,)
        super().initialize(pattern, initiator, prologue, **keys)


def base_patterns():
    """dissononce's own patterns by name, one-way first."""
    found = {}
    for package in (oneway, interactive, deferred):
        for module in pkgutil.iter_modules(package.__path__):
            loaded = __import__(f"{package.__name__}.{module.name}", fromlist=["x"])
            pattern = getattr(loaded, f"{module.name}HandshakePattern")()
            found[pattern.name] = pattern
    return found


def modified(pattern, modifiers):
    """`pattern` with `modifiers` applied from left to right (sections 9.4 and 10.2)."""
    messages = [list(message) for message in pattern.message_patterns]
    initiator = list(pattern.initiator_pre_message_pattern)
    as_bob = False
    for modifier in modifiers:
        if modifier == "fallback":
            assert messages[0] in (["e"], ["s"], ["e", "s"])
            initiator = [key for key in ("e", "s") if key in initiator + messages[0]]
            messages, as_bob = messages[1:], True
        elif modifier == "psk0":
            messages[0].insert(0, "psk")
        else:
            messages[int(modifier[3:]) - 1].append("psk")
    return HandshakePattern(
        pattern.name + "+".join(modifiers),
        tuple(tuple(message) for message in messages), tuple(initiator),
        tuple(pattern.responder_pre_message_pattern), as_bob)


def draw(label, count):
    """`count` bytes that depend only on the seed and the label."""
    return hashlib.shake_256(SEED + b"\0" + label.encode()).digest(count)


def key_pair(curve, private):
    key = CURVES[curve][1].from_private_bytes(private)
    public = key.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    length = CURVES[curve][2]
    return KeyPair(PublicKey(length, public), PrivateKey(private))


def handshake_state(curve, cipher, hash_name, ephemeral):
    dh = CURVES[curve][0]()
    dh.generate_keypair = lambda privatekey=None: ephemeral
    state = SymmetricState(CipherState(CIPHERS[cipher]()), HASHES[hash_name]())
    return HandshakeState(state, dh)


def run(pattern, suite, prologue, psks, privates, payloads):
    """Runs a handshake and transport messages, with dissononce as both sides.

    `privates` has the private keys by side and kind, such as ("init", "s"). A side gets those public
    keys of the other side that are in a pre-message. Returns the messages, the hash and the states.
    """
    curve, cipher, hash_name = suite
    name = "_".join(("Noise", pattern.name) + suite)
    pre_messages = {"init": pattern.initiator_pre_message_pattern, "resp": pattern.responder_pre_message_pattern}
    writers = WRITERS[::-1] if pattern.interpret_as_bob else WRITERS
    pairs = {owner: key_pair(curve, private) for owner, private in privates.items()}
    states = {}
    for side in WRITERS:
        keys = {"psks": psks}
        if (side, "s") in pairs:
            keys["s"] = pairs[side, "s"]
        if "e" in pre_messages[side]:
            keys["e"] = pairs[side, "e"]
        for kind in pre_messages[OTHER[side]]:
            keys["r" + kind] = pairs[OTHER[side], kind].public
        states[side] = handshake_state(curve, cipher, hash_name, pairs.get((side, "e")))
        states[side].initialize(pattern, side == "init", prologue, **keys)

    messages, split = [], {}
    count = len(pattern.message_patterns)
    for index, payload in enumerate(payloads[:count]):
        writer = writers[index % 2]
        message, received = bytearray(), bytearray()
        split[writer] = states[writer].write_message(payload, message)
        split[OTHER[writer]] = states[OTHER[writer]].read_message(bytes(message), received)
        assert bytes(received) == payload, name
        messages.append(bytes(message))
    digests = [states[side].symmetricstate.get_handshake_hash() for side in WRITERS]
    assert digests[0] == digests[1], name
    one_way = len(pattern.origin_name) == 1
    for index, payload in enumerate(payloads[count:], count):
        writer = "init" if one_way else writers[index % 2]
        # The first key is for messages of the side that writes the pattern's first message.
        direction = 0 if writer == writers[0] else 1
        ciphertext = split[writer][direction].encrypt_with_ad(b"", payload)
        assert split[OTHER[writer]][direction].decrypt_with_ad(b"", ciphertext) == payload, name
        messages.append(ciphertext)
    return messages, digests[0], states


def make(pattern, suite, kept_states=None):
    """Makes one vector, on which both sides of dissononce agree; appends their states to `kept_states`."""
    name = "_".join(("Noise", pattern.name) + suite)
    length = CURVES[suite[0]][2]
    prologue = draw(name + " prologue", 4)
    tokens = [token for message in pattern.message_patterns for token in message]
    psks = [draw(f"{name} psk {index}", 32) for index in range(tokens.count("psk"))]
    pre_messages = {"init": pattern.initiator_pre_message_pattern, "resp": pattern.responder_pre_message_pattern}
    writers = WRITERS[::-1] if pattern.interpret_as_bob else WRITERS
    sent = {side: set(pre_messages[side]) for side in WRITERS}
    for index, message in enumerate(pattern.message_patterns):
        sent[writers[index % 2]].update(message)
    privates = {
        (side, kind): draw(f"{name} {side} {kind}", length)
        for side in WRITERS for kind in "se" if kind in sent[side]}
    count = len(pattern.message_patterns)
    sizes = [draw(f"{name} size {index}", 1)[0] % 6 for index in range(count)] + [5, 5]
    payloads = [draw(f"{name} payload {index}", size) for index, size in enumerate(sizes)]

    messages, digest, states = run(pattern, suite, prologue, psks, privates, payloads)
    if kept_states is not None:
        kept_states.append(states)
    vector = {"protocol_name": name}
    for side in WRITERS:
        vector[f"{side}_prologue"] = prologue.hex()
        if psks:
            vector[f"{side}_psks"] = [psk.hex() for psk in psks]
        for kind, field in (("s", "static"), ("e", "ephemeral")):
            if (side, kind) in privates:
                vector[f"{side}_{field}"] = privates[side, kind].hex()
        if "s" in pre_messages[OTHER[side]]:
            public = key_pair(suite[0], privates[OTHER[side], "s"]).public.data
            vector[f"{side}_remote_static"] = public.hex()
    vector["handshake_hash"] = digest.hex()
    vector["messages"] = [
        {"payload": payload.hex(), "ciphertext": message.hex()}
        for payload, message in zip(payloads, messages)]
    return vector


def replay(path):
    """Runs vectors of another implementation; returns their number, and how many noiseprotocol ran too."""
    patterns = base_patterns()
    vectors = json.loads(pathlib.Path(path).read_text())["vectors"]
    cross_checked = 0
    for vector in vectors:
        name = vector["protocol_name"]
        _, pattern_name, *suite = name.split("_")
        base, modifiers = HandshakePattern.parse_handshakepattern(pattern_name)
        pattern = modified(patterns[base], modifiers)
        assert pattern.name == pattern_name, name
        privates = {
            (side, kind): bytes.fromhex(vector[f"{side}_{field}"])
            for side in WRITERS for kind, field in (("s", "static"), ("e", "ephemeral"))
            if vector.get(f"{side}_{field}")}
        prologue = bytes.fromhex(vector.get("init_prologue", ""))
        psks = [bytes.fromhex(psk) for psk in vector.get("init_psks", [])]
        payloads = [bytes.fromhex(message["payload"]) for message in vector["messages"]]
        messages, digest, _ = run(pattern, tuple(suite), prologue, psks, privates, payloads)
        for index, message in enumerate(vector["messages"]):
            assert messages[index].hex() == message["ciphertext"], (name, index)
        assert digest.hex() == vector.get("handshake_hash", digest.hex()), name
        if base.isalpha() and not pattern.interpret_as_bob:
            cross_check(vector, one_way=len(base) == 1)
            cross_checked += 1
    return len(vectors), cross_checked


def cross_check(vector, one_way):
    """Checks that noiseprotocol, in both roles, writes the same messages and reads them."""
    sides = {}
    for side in ("init", "resp"):
        connection = NoiseConnection.from_name(vector["protocol_name"].encode())
        connection.set_as_initiator() if side == "init" else connection.set_as_responder()
        connection.set_prologue(bytes.fromhex(vector[f"{side}_prologue"]))
        if f"{side}_psks" in vector:
            connection.set_psks(psks=[bytes.fromhex(psk) for psk in vector[f"{side}_psks"]])
        for field, kind in (("static", Keypair.STATIC), ("ephemeral", Keypair.EPHEMERAL)):
            if f"{side}_{field}" in vector:
                connection.set_keypair_from_private_bytes(
                    kind, bytes.fromhex(vector[f"{side}_{field}"]))
        if f"{side}_remote_static" in vector:
            connection.set_keypair_from_public_bytes(
                Keypair.REMOTE_STATIC, bytes.fromhex(vector[f"{side}_remote_static"]))
        connection.start_handshake()
        sides[side] = connection
    for index, message in enumerate(vector["messages"]):
        payload, expected = (bytes.fromhex(message[key]) for key in ("payload", "ciphertext"))
        first = index % 2 == 0 or one_way
        writer, reader = (sides["init"], sides["resp"]) if first else (sides["resp"], sides["init"])
        if writer.handshake_finished:
            assert writer.encrypt(payload) == expected, (vector["protocol_name"], index)
            assert reader.decrypt(expected) == payload, (vector["protocol_name"], index)
        else:
            assert bytes(writer.write_message(payload)) == expected, (vector["protocol_name"], index)
            assert bytes(reader.read_message(expected)) == payload, (vector["protocol_name"], index)
    for connection in sides.values():
        assert connection.noise_protocol.handshake_hash.hex() == vector["handshake_hash"]


def files():
    """The patterns of each file, by the file's name."""
    patterns = base_patterns()
    plain = {"one-way": [], "interactive": [], "deferred": []}
    psk, psks, fallback = [], [], []
    for name, pattern in patterns.items():
        deferred_name = any(character.isdigit() for character in name)
        kind = "one-way" if len(name) == 1 else "deferred" if deferred_name else "interactive"
        plain[kind].append(modified(pattern, []))
        positions = [f"psk{index}" for index in range(len(pattern.message_patterns) + 1)]
        psk += [modified(pattern, [position]) for position in positions]
        psks += [modified(pattern, positions)]
        if pattern.message_patterns[0] in (("e",), ("s",), ("e", "s")):
            last = f"psk{len(pattern.message_patterns) - 1}"
            fallback += [
                modified(pattern, modifiers)
                for modifiers in (["fallback"], ["fallback", "psk0"], ["fallback", last])]
    return {**plain, "psk": psk, "psks": psks, "fallback": fallback}


def render(vectors):
    """The vectors in the format that Noise implementations share, one in each line."""
    lines = (json.dumps(vector, separators=(",", ":")) for vector in vectors)
    return '{"vectors":[\n' + ",\n".join(lines) + "\n]}\n"


def rekey_vectors():
    """Keys before and after Rekey(), and a message under the new key, with the value that n had before Rekey()."""
    vectors = []
    for cipher, kind in CIPHERS.items():
        state = CipherState(kind())
        key = draw(f"rekey {cipher}", 32)
        state.initialize_key(key)
        state.set_nonce(7)
        state.rekey()
        vectors.append({
            "cipher": cipher, "key": key.hex(), "rekeyed": state._key.hex(), "nonce": 7,
            "plaintext": "00112233", "ciphertext":
                state.encrypt_with_ad(b"", bytes.fromhex("00112233")).hex()})
    return json.dumps({"vectors": vectors}, indent=1) + "\n"


def additional_keys():
    """Additional symmetric keys after an NN handshake with each hash: ask_master = HKDF(ck, "", info "ask"),
    key = HKDF(ask_master, h || label)."""
    entries = []
    for hash_name in HASHES:
        hash_function = hash_name.lower()
        states = []
        suite = ("25519", "ChaChaPoly", hash_name)
        vector = make(modified(base_patterns()["NN"], []), suite, states)
        symmetric = states[0]["init"].symmetricstate

        def mac(key, data):
            return hmac.new(key, data, hash_function).digest()

        master = mac(mac(symmetric._ck, b""), b"ask\x01")
        keys = []
        for label in ("", "channel", "a label that is longer than one block of any of these hashes, "
                      "so that the extraction has to hash more than one block of its input"):
            extracted = mac(master, bytes.fromhex(vector["handshake_hash"]) + label.encode())
            keys.append({"label": label, "key": mac(extracted, b"\x01")[:32].hex()})
        entries.append({"vector": vector, "keys": keys})
    return json.dumps({"entries": entries}, indent=1) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="compare the files, and write nothing")
    arguments.add_argument("--replay", nargs="+", metavar="FILE", help="run vectors of another implementation")
    options = arguments.parse_args()
    check = options.check
    # noiseprotocol warns about every fixed ephemeral key.
    warnings.simplefilter("ignore")
    if options.replay:
        for path in options.replay:
            count, cross_checked = replay(path)
            print(f"{path}: {count} passed, {cross_checked} of them in noiseprotocol as well")
        return
    total = cross_checked = 0
    outputs = {}
    for name, patterns in files().items():
        vectors = []
        for pattern in patterns:
            for curve in CURVES:
                for cipher in CIPHERS:
                    for hash_name in HASHES:
                        vector = make(pattern, (curve, cipher, hash_name))
                        base = pattern.origin_name
                        if base.isalpha() and not pattern.interpret_as_bob:
                            cross_check(vector, one_way=len(base) == 1)
                            cross_checked += 1
                        vectors.append(vector)
        outputs[HERE / "noise" / f"{name}.json"] = render(vectors)
        total += len(vectors)
        print(f"{name}: {len(vectors)} vectors", flush=True)
    outputs[HERE / "rekey.json"] = rekey_vectors()
    outputs[HERE / "additional-keys.json"] = additional_keys()
    print(f"{total} vectors, {cross_checked} of them checked with noiseprotocol,"
          f" {sum(map(len, outputs.values()))} bytes")
    for path, text in outputs.items():
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} differs from what this script makes")


if __name__ == "__main__":
    main()
