"""Eight bytes at a time: the arithmetic that lets NumPy read numbers out of text.

Every function takes whole columns of positions in a block of bytes. A load of eight bytes
at any position is one element of an overlapping view, and eight digits become a number in
three multiplications. Positions may run a little past the block: it is padded for that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

PADDING = 256
_ZEROS = np.uint64(0x3030303030303030)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_CARRY = np.uint64(0x7676767676767676)
_ONE, _8, _16, _32 = (np.uint64(n) for n in (1, 8, 16, 32))
_10, _100, _10000 = (np.uint64(n) for n in (10, 100, 10000))
_HIGH = np.uint64(0x8080808080808080)


def pad(data: bytes) -> bytes:
    """Return the block with room behind it, so that loads near its end stay inside."""
    return data + bytes(PADDING)


def words_of(padded: bytes) -> Words:
    """Return a view whose element i is the eight bytes at i, first byte lowest."""
    return np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))


def records_of(padded: bytes) -> npt.NDArray[np.void]:
    """Return a view whose element i is the 64 bytes at i.

    Fetching 64 bytes costs no more than fetching eight: the time goes into finding them.
    """
    return np.ndarray((len(padded) - 63,), dtype="V64", buffer=padded, strides=(1,))


def eights(records: npt.NDArray[np.void]) -> Words:
    """Return records as words; axes: (record, word of eight bytes)."""
    return records.view("<u8").reshape(len(records), 8)


def word_in(words: Words, byte: int) -> Words:
    """Return the eight bytes that begin at one byte of each record."""
    place, shift = divmod(byte, 8)
    if not shift:
        return words[:, place]
    low = words[:, place] >> np.uint64(8 * shift)
    low |= words[:, place + 1] << np.uint64(64 - 8 * shift)
    return low


def byte_of(loaded: Words, byte: int) -> Words:
    """Return one byte of each word."""
    return (loaded >> np.uint64(8 * byte)) & np.uint64(255)


def word(text: bytes) -> np.uint64:
    """Return up to eight bytes of text as a word to compare with."""
    return np.uint64(int.from_bytes(text, "little"))


def digits(words: Words, at: Int64s) -> tuple[Int64s, Int64s]:
    """Read the number that starts at each position: its value and its count of digits.

    Up to sixteen digits; where there is none, both are zero.
    """
    return _go_on(words, at, *eight_digits(words[at]))


def digits_in(loaded: Words, words: Words, at: Int64s) -> tuple[Int64s, Int64s]:
    """Read the number at each position, where its first eight bytes have been fetched."""
    return _go_on(words, at, *eight_digits(loaded))


def signed_in(loaded: Words, words: Words, at: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Read numbers that may have a minus; also returns their digits' count and where they end.

    Their first eight bytes have been fetched; `loaded` is used up.
    """
    minus = np.flatnonzero((loaded & np.uint64(255)) == 45)
    if len(minus):
        at = at.copy()
        at[minus] += 1
        loaded[minus] = words[at[minus]]
    value, count = digits_in(loaded, words, at)
    value[minus] *= -1
    return value, count, at + count


def _go_on(words: Words, at: Int64s, value: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    long = np.flatnonzero(count == 8)
    if len(long):
        more, further = eight_digits(words[at[long] + 8])
        value[long] = value[long] * 10**further + more
        count[long] += further
    return value, count


def eight_digits(loaded: Words) -> tuple[Int64s, Int64s]:
    """Read the number at the front of each word, of up to eight digits, and count them."""
    values = loaded ^ _ZEROS  # a digit becomes 0 to 9, anything else becomes more
    others = (((values & _LOW7) + _CARRY) | values) & _HIGH
    # The lowest set bit marks the first byte that is no digit; none set means eight digits.
    bits = np.bitwise_count((others & (~others + _ONE)) - _ONE) & np.uint8(0x78)
    # Digits go to the high end; what is shifted in is the zeros in front of the number.
    # (NumPy shifts by 64 to zero, which is right where there is no digit at all.)
    values <<= np.uint64(64) - bits
    return _join_digits(values), (bits >> np.uint8(3)).astype(np.int64)


def _join_digits(values: Words) -> Int64s:
    """Make one number of the eight digits in each word, the first one highest."""
    values = (values * _10 + (values >> _8)) & np.uint64(0x00FF00FF00FF00FF)
    values = (values * _100 + (values >> _16)) & np.uint64(0x0000FFFF0000FFFF)
    values = (values * _10000 + (values >> _32)) & np.uint64(0xFFFFFFFF)
    return values.view(np.int64)


def right_aligned(loaded: Words) -> npt.NDArray[np.float64]:
    """Read words that hold a number with blanks in front; NaN where they hold anything else."""
    filled = loaded | np.uint64(0x1010101010101010)  # turns blanks into zeros
    values = filled ^ _ZEROS
    # Digits and blanks only, and a digit at the end.
    fits = (((values & _LOW7) + _CARRY) | values) & _HIGH == np.uint64(0)
    fits &= (loaded >> np.uint64(56)) >= np.uint64(48)
    number = _join_digits(values).astype(np.float64)
    number[~fits] = np.nan
    return number


def blanks(loaded: Words) -> Int64s:
    """Return how many blanks each word begins with; eight where there is nothing else."""
    values = loaded ^ np.uint64(0x2020202020202020)
    others = (((values & _LOW7) + _LOW7) | values) & _HIGH
    bits = np.bitwise_count((others & (~others + _ONE)) - _ONE) & np.uint8(0x78)
    return (bits >> np.uint8(3)).astype(np.int64)


def pair(loaded: Words, byte: int) -> Int64s:
    """Return the two-digit number at one byte of each word."""
    both = (loaded >> np.uint64(8 * byte)) & np.uint64(0x0F0F)
    # Ten times the low byte plus the high one, in the second byte of the product.
    both *= np.uint64(0x0A01)
    both >>= np.uint64(8)
    both &= np.uint64(255)
    return both.view(np.int64)
