#!/usr/bin/python3
"""png.py FILE: prints, as JSON, the width and height of a PNG of 8-bit RGB or RGBA, and its 64 most
frequent colours as [red, green, blue, number of pixels]."""

import collections
import json
import struct
import sys
import zlib

with open(sys.argv[1], "rb") as file:
    data = file.read()
assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
offset, pixels = 8, b""
while offset < len(data):
    (length,) = struct.unpack(">I", data[offset:offset + 4])
    kind, body = data[offset + 4:offset + 8], data[offset + 8:offset + 8 + length]
    offset += 12 + length
    if kind == b"IHDR":
        width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        assert depth == 8 and colour in (2, 6) and body[12] == 0, "interlaced, or neither 8-bit RGB nor 8-bit RGBA"
        channels = 3 if colour == 2 else 4
    elif kind == b"IDAT":
        pixels += body
pixels = zlib.decompress(pixels)

colours = collections.Counter()
stride = channels * width
previous_line = bytearray(stride)
for row in range(height):
    start = row * (stride + 1)
    filter_type, line = pixels[start], bytearray(pixels[start + 1:start + 1 + stride])
    for i in range(stride):
        left = line[i - channels] if i >= channels else 0
        corner = previous_line[i - channels] if i >= channels else 0
        up = previous_line[i]
        if filter_type == 1:
            line[i] = (line[i] + left) & 255
        elif filter_type == 2:
            line[i] = (line[i] + up) & 255
        elif filter_type == 3:
            line[i] = (line[i] + (left + up) // 2) & 255
        elif filter_type == 4:
            estimate = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(estimate - value))
            line[i] = (line[i] + nearest) & 255
    colours.update(zip(*(line[channel::channels] for channel in range(3))))
    previous_line = line
common = [[*colour, count] for colour, count in colours.most_common(64)]
print(json.dumps({"width": width, "height": height, "colours": common}))
