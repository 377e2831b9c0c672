"""Read numbers out of text with NumPy, eight bytes (a word) at a time.

Every function takes whole columns of positions in a block of bytes. The eight bytes at any
position are one element of an overlapping view, and eight digits become a number in three
multiplications. Positions may be slightly past the end of the block, which is padded for that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.hashing import MIX as _MIX

Words = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

PADDING = 256
_ZEROS = np.uint64(0x3030303030303030)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_CARRY = np.uint64(0x7676767676767676)
_ONE, _3, _7, _56, _64 = (np.uint64(n) for n in (1, 3, 7, 56, 64))
_HIGH = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_GATHER_BITS = np.uint64(0x0102040810204080)  # moves the low bit of each byte to the highest byte
_LOWEST = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # masks of low bytes
_WHOLE_BYTES = np.uint64(0x78)  # rounds a number of bits down to whole bytes
# Join digits to pairs, pairs to fours, fours to eights: factor, shift, and mask of the result.
_JOINS = tuple(
    (np.uint64(factor), np.uint64(shift), np.uint64(kept))
    for factor, shift, kept in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10000, 32, 0x00000000FFFFFFFF),
    )
)


def pad(data: bytes) -> bytes:
    """Return the block with padding after it, so that loads near its end stay inside."""
    return data + bytes(PADDING)


class BlockWords:
    """The little-endian words of a padded block, by position; they overlap.

    Bytes are fetched as NumPy voids, which it copies from unaligned positions faster than numbers.
    """

    def __init__(self, padded: bytes) -> None:
        self._padded = padded
        self._single = self._voids(8)

    def __getitem__(self, at: Int64s) -> Words:
        """Return the word at each position."""
        return self._single[at].view("<u8")

    def fetch(self, at: Int64s, count: int) -> Words:
        """Return `count` words at each position; axes: (word, position).

        Several words cost little more than one, because most of the time is memory access. The
        result is contiguous along positions, which makes NumPy several times as fast.
        """
        loaded = self._voids(8 * count)[at]
        return np.ascontiguousarray(loaded.view("<u8").reshape(len(at), count).T)

    def _voids(self, size: int) -> npt.NDArray[np.void]:
        count = len(self._padded) - size + 1
        return np.ndarray((count,), f"V{size}", buffer=self._padded, strides=(1,))


def word_in(words: Words, byte: int) -> Words:
    """Return the eight bytes that begin at this byte of the fetched words."""
    place, shift = divmod(byte, 8)
    shifted: Words = words[place]
    if shift:
        shifted = shifted >> np.uint64(8 * shift)
        shifted |= words[place + 1] << np.uint64(64 - 8 * shift)
    return shifted


def byte_of(loaded: Words, byte: int) -> Words:
    """Return one byte of each word."""
    return (loaded >> np.uint64(8 * byte)) & np.uint64(255)


@cache
def word(text: bytes) -> np.uint64:
    """Return up to eight bytes of text as a word."""
    return np.uint64(int.from_bytes(text, "little"))


def digits(words: BlockWords, at: Int64s) -> tuple[Int64s, Int64s]:
    """Read the number that starts at each position; return its value and its number of digits.

    It may have up to sixteen digits. Where there is no digit, both are zero.
    """
    return _go_on(words, at, *eight_digits(words[at]))


def digits_in(loaded: Words, words: BlockWords, at: Int64s) -> tuple[Int64s, Int64s]:
    """Read the number at each position; its first eight bytes are in `loaded`."""
    return _go_on(words, at, *eight_digits(loaded))


def signed_in(loaded: Words, words: BlockWords, at: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Read numbers that may have a minus sign; return value, number of digits and end.

    Their first eight bytes are in `loaded`, which is overwritten.
    """
    minus = np.flatnonzero((loaded & np.uint64(255)) == 45)
    if len(minus):
        at = at.copy()
        at[minus] += 1
        loaded[minus] = words[at[minus]]
    value, count = digits_in(loaded, words, at)
    value[minus] *= -1
    return value, count, at + count


def _go_on(words: BlockWords, at: Int64s, value: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    long = np.flatnonzero(count == 8)
    if len(long):
        more, further = eight_digits(words[at[long] + 8])
        value[long] = value[long] * 10**further + more
        count[long] += further
    return value, count


def eight_digits(loaded: Words) -> tuple[Int64s, Int64s]:
    """Read the number of up to eight digits at the front of each word; return it and its length."""
    values = loaded ^ _ZEROS  # a digit becomes 0 to 9, anything else becomes larger
    others = _others(values)
    # The lowest set bit marks the first byte that is not a digit; none set means eight digits.
    below = others - _ONE
    np.invert(others, out=others)
    below &= others
    bits = np.bitwise_count(below).astype(np.uint64)
    bits &= _WHOLE_BYTES
    # Shift the digits to the high end; the zeros shifted in are leading zeros.
    # (In NumPy a shift by 64 gives zero, which is right where there is no digit.)
    values <<= _64 - bits
    bits >>= _3
    return _join_digits(values), bits.view(np.int64)


def _others(values: Words) -> Words:
    """Return words with the highest bit set in every byte that is more than nine."""
    others = values & _LOW7
    others += _CARRY
    others |= values
    others &= _HIGH
    return others


def _join_digits(values: Words) -> Int64s:
    """Join the eight digits in each word to a number, the first digit highest; in place."""
    for factor, shift, kept in _JOINS:
        lower = values >> shift
        values *= factor
        values += lower
        values &= kept
    return values.view(np.int64)


def all_digits(loaded: Words, mask: np.uint64) -> npt.NDArray[np.bool_]:
    """Return which words have digits in all bytes that the mask covers."""
    alone: npt.NDArray[np.bool_] = _others((loaded ^ _ZEROS) & mask) == np.uint64(0)
    return alone


def right_aligned(loaded: Words) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Read words that hold a number after blanks; return which hold nothing else."""
    values = loaded | np.uint64(0x1010101010101010)  # turns blanks into zeros
    values ^= _ZEROS
    # Digits and blanks only, and a digit at the end.
    fits = _others(values) == np.uint64(0)
    fits &= loaded >= np.uint64(48 << 56)
    return _join_digits(values), fits


def blanks(loaded: Words) -> Int64s:
    """Return how many blanks each word begins with, up to eight."""
    values = loaded ^ np.uint64(0x2020202020202020)
    others = (((values & _LOW7) + _LOW7) | values) & _HIGH
    bits = np.bitwise_count((others - _ONE) & ~others) >> np.uint8(3)
    return bits.astype(np.int64)


def first_of(words: Words, byte: int) -> Int64s:
    """Return where the fetched words, at most eight, first have a byte; 64 if nowhere."""
    hits = np.zeros(words.shape[1], np.uint64)  # a bit for each byte
    for place, loaded in enumerate(words):
        values = loaded ^ np.uint64(byte * 0x0101010101010101)
        others = values & _LOW7
        others += _LOW7
        others |= values
        np.invert(others, out=others)
        others &= _HIGH
        others >>= _7
        others *= _GATHER_BITS
        others >>= _56
        others <<= np.uint64(8 * place)
        hits |= others
    below = hits - _ONE
    np.invert(hits, out=hits)
    below &= hits
    places: Int64s = np.bitwise_count(below).astype(np.int64)
    return places


def sum_of(words: Words, lengths: Int64s) -> Words:
    """Return a hash of the first `lengths` bytes of the fetched words."""
    total = np.zeros(len(lengths), np.uint64)
    for place, loaded in enumerate(words):
        total ^= loaded & np.take(_LOWEST, lengths - 8 * place, mode="clip")
        total *= _MIX
        total ^= total >> np.uint64(32)
    return total


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the different values in order; several times as fast as np.unique on numbers."""
    ordered = np.sort(values, axis=None)
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def stable_order(values: Int64s) -> Int64s:
    """Return the stable order of whole numbers: sorting them with their place beats argsort."""
    count = len(values)
    if not count:
        return np.empty(0, np.int64)
    low, bits = int(values.min()), count.bit_length()
    if (values[1:] >= values[:-1]).all():
        return np.arange(count)
    if int(values.max()) - low >= 1 << (63 - bits):
        return np.argsort(values, kind="stable")
    keys = ((values - low) << bits) + np.arange(count)
    keys.sort()
    order: Int64s = keys & ((1 << bits) - 1)
    return order


def equal_groups(sums: Words) -> list[Int64s]:
    """Return the indices of equal hashes, group by group; in order within a group.

    They are sorted by sixteen bits, twice, which NumPy does in linear time.
    """
    order = np.argsort(sums.astype(np.uint16), kind="stable")
    highest = (sums >> np.uint64(48)).astype(np.uint16)
    order = order[np.argsort(highest[order], kind="stable")]
    sums = sums[order]
    return np.split(order, np.flatnonzero(sums[1:] != sums[:-1]) + 1) if len(order) else []


def cut_words(words: Words, lengths: Int64s) -> Words:
    """Return the fetched words, with zeros after the first `lengths` bytes."""
    places = 8 * np.arange(len(words))[:, None]
    cut: Words = words & np.take(_LOWEST, lengths - places, mode="clip")
    return cut


def pair(loaded: Words, byte: int) -> Int64s:
    """Return the two-digit number at one byte of each word."""
    both = (loaded >> np.uint64(8 * byte)) & np.uint64(0x0F0F)
    # Ten times the low byte plus the high byte is in the second byte of the product.
    both *= np.uint64(0x0A01)
    both >>= np.uint64(8)
    both &= np.uint64(255)
    return both.view(np.int64)
