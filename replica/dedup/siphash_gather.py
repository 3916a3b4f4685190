"""SipHash-2-4 over numbers that do not lie side by side, compiled by numba as `siphash_kernel` is.

Arrow holds many columns wider than ClickHouse does: seconds in 64 bits that are 32 there, decimals in 128. Each round
of the hash waits for the one before, so to pick the bytes in between costs nothing, where a copy would cost a pass.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from replica.dedup.siphash import State


@numba.njit(inline="always")
def _two_rounds(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v3 ^= word
    for _ in range(2):
        v0 += v1
        v1 = (v1 << np.uint64(13)) | (v1 >> np.uint64(51))
        v1 ^= v0
        v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
        v2 += v3
        v3 = (v3 << np.uint64(16)) | (v3 >> np.uint64(48))
        v3 ^= v2
        v0 += v3
        v3 = (v3 << np.uint64(21)) | (v3 >> np.uint64(43))
        v3 ^= v0
        v2 += v1
        v1 = (v1 << np.uint64(17)) | (v1 >> np.uint64(47))
        v1 ^= v2
        v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    v0 ^= word
    return v0, v1, v2, v3


def _gather(
    v0: np.uint64,
    v1: np.uint64,
    v2: np.uint64,
    v3: np.uint64,
    pending: np.uint64,
    filled: int,
    values: np.ndarray,
    mask: np.ndarray | None,
    width: int,
    swapped: bool,
) -> tuple[Any, ...]:
    """The state after the bytes of `values`, unsigned numbers of `width` bytes, those under the mask being zero.

    `pending` holds the `filled` bytes that no word has been made of yet, before and after.
    """
    for place in range(values.size):
        value = np.uint64(values[place])
        if mask is not None:
            value *= np.uint64(np.uint8(1) ^ mask[place])
        if swapped:
            value = ((value & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)) | (
                (value >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
            )
            value = ((value & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)) | (
                (value >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
            )
            value = (value << np.uint64(32)) | (value >> np.uint64(32))
        pending |= value << np.uint64(8 * filled)
        filled += width
        if filled < 8:
            continue
        v0, v1, v2, v3 = _two_rounds(v0, v1, v2, v3, pending)
        filled -= 8
        pending = value >> np.uint64(8 * (width - filled)) if filled else np.uint64(0)
    return v0, v1, v2, v3, pending, filled


def _gather_pairs(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, values: np.ndarray
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The state after the pairs of values of four bytes: the commonest case, and faster by itself."""
    even = values.size // 2 * 2  # said here, the compiler knows that no index is beyond the end
    for place in range(0, even, 2):
        word = np.uint64(values[place]) | np.uint64(values[place + 1]) << np.uint64(32)
        v0, v1, v2, v3 = _two_rounds(v0, v1, v2, v3, word)
    return v0, v1, v2, v3


def _compiled(function: Any) -> Any:
    try:
        return numba.njit(cache=True)(function)
    except (RuntimeError, OSError):
        return numba.njit(function)


_kernel = _compiled(_gather)
_pairs = _compiled(_gather_pairs)


def gather(state: State, pending: int, filled: int, data: np.ndarray) -> tuple[State, int, int]:
    """The state after the numbers of an array that `SipHash128.update` takes, and the bytes that are left over."""
    mask = np.ma.getmaskarray(data).view(np.uint8) if isinstance(data, np.ma.MaskedArray) else None
    values = np.ma.getdata(data)
    swapped = values.dtype.byteorder == ">"
    unsigned = values.view(f"<u{values.dtype.itemsize}")
    if mask is None and unsigned.itemsize == 4 and not filled:
        even = len(unsigned) // 2 * 2
        paired = _pairs(*map(np.uint64, state), unsigned[:even])
        state, unsigned = (int(paired[0]), int(paired[1]), int(paired[2]), int(paired[3])), unsigned[even:]
    words = [np.uint64(each) for each in (*state, pending)]
    v0, v1, v2, v3, pending, filled = _kernel(*words, filled, unsigned, mask, values.dtype.itemsize, swapped)
    return (int(v0), int(v1), int(v2), int(v3)), int(pending), int(filled)
