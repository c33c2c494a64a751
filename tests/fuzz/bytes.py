"""Bytes that choose: mutations of valid documents, and a reader that turns bytes into arguments."""

import random
import struct

INTERESTING = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63)
WORDS = (
    *b"null true -1 1e400 1e-400 NaN Infinity [] {} 0x10 ../../ = - ' \\ud800".split(),
    *(b'""', b'"', b"\x00", b"\xff\xfe", b"\r\n", b"9" * 400, b"[" * 2000, b'{"a":' * 500),
)


def mutate(seed: bytes, rng: random.Random) -> bytes:
    """Return a document with one to eight changes: bits, bytes, pieces, numbers, words, two halves."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[place % len(data)] = rng.randrange(256)
        elif kind == 2:
            del data[place : place + rng.choice((1, 2, 8, 64, 4096))]
        elif kind == 3:
            data[place:place] = data[place : place + rng.choice((1, 8, 64))] * rng.choice((1, 2, 50))
        elif kind == 4:
            data[place:place] = rng.choice(WORDS)
        elif kind == 5:
            width = rng.choice(("<i", "<q", ">i", ">q"))
            number = rng.choice(INTERESTING) & (2 ** (8 * struct.calcsize(width)) - 1)
            data[place : place + struct.calcsize(width)] = struct.pack(width.upper(), number)
        elif kind == 6:
            end = place
            while end < len(data) and chr(data[end]) in "0123456789.-+e":
                end += 1
            data[place:end] = rng.choice(WORDS) if end > place else b""
        else:
            data = data[:place] + data[rng.randrange(len(data) + 1) :]
    return bytes(data)


class Chooser:
    """Choices that bytes make; without bytes left, the first of everything."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        """Return a number from 0 to below - 1."""
        found = 0
        for _ in range((below.bit_length() + 7) // 8 or 1):
            found = found * 256 + (self._data[self._at] if self._at < len(self._data) else 0)
            self._at += 1
        return found % below

    def one_of(self, options):
        """Return one of the options."""
        return options[self.number(len(options))]

    def chance(self, part: int) -> bool:
        """Return True about once in ``part`` times."""
        return self.number(part) == part - 1

    def double(self) -> float:
        """Return any double."""
        raw = bytes(self.number(256) for _ in range(8))
        return struct.unpack("<d", raw)[0]
