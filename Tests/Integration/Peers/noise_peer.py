"""One end of a direct channel, made with the independent implementation `noiseprotocol`.

    noise_peer.py initiator|responder PROTOCOL PRIVATE-KEY SOCKET [PEER-KEY]
    noise_peer.py public PROTOCOL PRIVATE-KEY        prints the public key

Keys are raw, in base64. Standard input is sent to the peer in messages of various sizes, and the
peer's messages are written to standard output. Standard error gets `listening` when the program can
be dialed, `peer KEY` after a handshake in which the peer has a static key, and at the end
`ended by an empty message` or `ended without one`.
"""

import base64
import socket
import struct
import sys
import threading

from noise.connection import Keypair, NoiseConnection

# The lengths of the messages, in bytes: tiny, ordinary, and the maximum of 65,519.
SIZES = [1, 1000, 65519, 16384, 2, 40000]


def say(text):
    print(text, file=sys.stderr, flush=True)


def connect(role, path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if role == "initiator":
        connection.connect(path)
        return connection
    connection.bind(path)
    connection.listen(1)
    say("listening")
    return connection.accept()[0]


def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        piece = stream.recv(count - len(data))
        if not piece:
            if data:
                raise EOFError("the stream ended inside a message")
            return None
        data += piece
    return data


def read_message(stream):
    header = read_exactly(stream, 2)
    if header is None:
        return None
    (length,) = struct.unpack(">H", header)
    body = read_exactly(stream, length)
    if body is None and length > 0:
        raise EOFError("the stream ended inside a message")
    return body or b""


def send_message(stream, message):
    stream.sendall(struct.pack(">H", len(message)) + bytes(message))


def handshake(noise, stream, writes):
    """Runs the handshake; `writes` tells whether this side writes the next message."""
    state = noise.noise_protocol.handshake_state
    while not noise.handshake_finished:
        if writes:
            send_message(stream, noise.write_message())
        else:
            noise.read_message(read_message(stream))
        writes = not writes
    key = getattr(state, "rs", None)
    if key is not None and hasattr(key, "public_bytes"):
        say("peer " + base64.b64encode(key.public_bytes).decode())


def send_all(noise, stream):
    data = sys.stdin.buffer.read()
    index = 0
    while data:
        size = SIZES[index % len(SIZES)]
        index += 1
        send_message(stream, noise.encrypt(data[:size]))
        data = data[size:]
    send_message(stream, noise.encrypt(b""))
    stream.shutdown(socket.SHUT_WR)


def main():
    role, protocol, private = sys.argv[1:4]
    noise = NoiseConnection.from_name(protocol.encode())
    noise.set_keypair_from_private_bytes(Keypair.STATIC, base64.b64decode(private))
    if role == "public":
        key = noise.noise_protocol.keypairs["s"].public_bytes
        print(base64.b64encode(key).decode())
        return
    if role == "initiator":
        noise.set_as_initiator()
    else:
        noise.set_as_responder()
    if len(sys.argv) > 5:
        noise.set_keypair_from_public_bytes(
            Keypair.REMOTE_STATIC, base64.b64decode(sys.argv[5]))
    noise.start_handshake()
    stream = connect(role, sys.argv[4])
    handshake(noise, stream, role == "initiator")
    sender = threading.Thread(target=send_all, args=(noise, stream))
    sender.start()
    last_was_empty = False
    while (message := read_message(stream)) is not None:
        plaintext = noise.decrypt(message)
        last_was_empty = not plaintext
        sys.stdout.buffer.write(plaintext)
    sys.stdout.buffer.flush()
    sender.join()
    say("ended by an empty message" if last_was_empty else "ended without one")


main()
