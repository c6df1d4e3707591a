#!/usr/bin/env python3
"""The King James Bible as arrays of characters, for gpt_small, and as text.

    bible -f gen1:1-rev22:21 | models/gpt_small/characters.py     # Debian: bible-kjv, bible-kjv-text

writes runs/data/{train,test}_{text,next}.npy, bytes [samples, 128]: codes of characters, and those of
the characters after them; and bible_{train,test}.txt, the same books, a verse a line.  Every eighth
book is for the test, and is a whole.  A test sample begins 64 characters after the one before: it sees
them, and what it had to say of them does not count.
"""

import sys
from pathlib import Path

ALPHABET = "\n !'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH, STEP = 128, 64
IGNORED = 255


def books(lines):
    """Each book's codes, a verse a line; lines are such as "1Sm2:3 Talk no more ..."."""
    texts = {}
    for line in lines:
        place, verse = line.rstrip("\n").split(" ", 1)
        book = place.split(":")[0].rstrip("0123456789")
        texts.setdefault(book, []).append(verse + "\n")
    return [bytes(map(ALPHABET.index, "".join(verses))) for verses in texts.values()]


def split(lines):
    """The codes of the books to train on, and of those to test on."""
    numbered = list(enumerate(books(lines), 1))
    return [book for i, book in numbered if i % 8], [book for i, book in numbered if i % 8 == 0]


def samples(book, test):
    """Pairs of LENGTH codes and LENGTH next ones; the last is filled up."""
    for begin in range(0, len(book) - 1, STEP):
        text, following = book[begin:begin + LENGTH], book[begin + 1:begin + LENGTH + 1]
        seen = LENGTH - STEP if test and begin > 0 else 0
        if len(following) <= seen:
            return
        following = bytes([IGNORED] * seen) + following[seen:]
        yield text.ljust(LENGTH, b"\0"), following.ljust(LENGTH, bytes([IGNORED]))


def npy_header(*shape):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00\x76\x00" + f"{text:<117}\n".encode()  # 128 bytes


def main():
    folder = Path(__file__).absolute().parents[2] / "runs/data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train", "test"), split(sys.stdin)):
        pairs = [pair for book in part for pair in samples(book, name == "test")]
        for kind, arrays in zip(("text", "next"), zip(*pairs)):
            header = npy_header(len(pairs), LENGTH)
            (folder / f"{name}_{kind}.npy").write_bytes(header + b"".join(arrays))
        text = "".join(ALPHABET[code] for book in part for code in book)
        (folder / f"bible_{name}.txt").write_text(text)
        print(f"{name}: {len(part)} books, {sum(map(len, part))} characters, {len(pairs)} samples")


if __name__ == "__main__":
    main()
