#!/usr/bin/env python3
"""Writes images and labels for the trainers of nets whose data set is not here: bytes, into
runs/data/images_224.npy, images_227.npy and labels.npy.

An image is noise around a colour, which the label says; there are 256, as many as labels.
"""

import random
from pathlib import Path

COUNT = 256


def npy_header(*shape):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00\x76\x00" + f"{text:<117}\n".encode()  # 128 bytes


def image(label, pixels, numbers):
    """Red, green and blue from 3, 3 and 2 bits of the label, a level of 16 and noise of 128 levels."""
    data = bytearray(3 * pixels)
    for channel, level in enumerate((label & 7, label >> 3 & 7, 2 * (label >> 6))):
        table = bytes(16 * level + v // 2 for v in range(256))
        data[channel::3] = numbers.randbytes(pixels).translate(table)
    return data


def main():
    folder = Path(__file__).absolute().parents[1] / "runs/data"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)
    labels = [numbers.randrange(256) for _ in range(COUNT)]
    (folder / "labels.npy").write_bytes(npy_header(COUNT) + bytes(labels))
    for size in (224, 227):
        with open(folder / f"images_{size}.npy", "wb") as file:
            file.write(npy_header(COUNT, size, size, 3))
            for label in labels:
                file.write(image(label, size * size, numbers))


if __name__ == "__main__":
    main()
