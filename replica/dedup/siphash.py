"""The 128-bit hash behind block ids (`SipHash.h`; SQL's `sipHash128`).

SipHash-2-4 with key 0 as it is for 64 bits, but with both halves of the last state given out: first = v0 ^ v1,
second = v2 ^ v3. It is not the 128-bit variant of SipHash's authors. The two halves XOR to the 64-bit SipHash-2-4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

State: TypeAlias = tuple[int, int, int, int]

_INITIAL: State = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_MASK = 2**64 - 1
_WORD = 8

# Up to here plain Python is done sooner than numba is imported.
_LARGE_BYTES = 4096


class SipHash128:
    """A hash in the making. Where the bytes are cut into updates makes no difference."""

    def __init__(self) -> None:
        self._state = _INITIAL
        self._tail = b""
        self._length = 0

    def update(self, data: bytes | memoryview | np.ndarray) -> None:
        """Append the bytes of a buffer, which is read in place.

        An array of numbers may have gaps between them, be big-endian (its bytes are appended as those of the
        little-endian numbers), or masked: what the mask hides is zero.
        """
        if isinstance(data, np.ndarray) and not _is_plain(data):
            self._update_scattered(data)
            return
        view = data.data if isinstance(data, np.ndarray) else memoryview(data)
        if view.nbytes == 0:
            return
        view = view.cast("B")
        self._length += view.nbytes
        if self._tail:
            missing = _WORD - len(self._tail)
            self._tail += bytes(view[:missing])
            if len(self._tail) < _WORD:
                return
            self._state = _compress_in_python(self._state, (int.from_bytes(self._tail, "little"),))
            view = view[missing:]
        whole = view.nbytes // _WORD
        if whole:
            self._state = _compress(self._state, np.frombuffer(view, "<u8", whole))
        self._tail = bytes(view[whole * _WORD :])

    def _update_scattered(self, data: np.ndarray) -> None:
        if data.nbytes < _LARGE_BYTES:
            self.update(gathered(data))
            return
        pending = int.from_bytes(self._tail, "little")
        self._state, pending, filled = _gather_kernel()(self._state, pending, len(self._tail), data)
        self._tail = pending.to_bytes(_WORD, "little")[:filled]
        self._length += data.nbytes

    def digest(self) -> tuple[int, int]:
        """The two halves, unsigned, of the hash of all that came so far; more may follow."""
        last = (self._length % 256) << 56 | int.from_bytes(self._tail, "little")
        v0, v1, v2, v3 = _compress_in_python(self._state, (last,))
        v0, v1, v2, v3 = _rounds((v0, v1, v2 ^ 0xFF, v3), 4)
        return v0 ^ v1, v2 ^ v3


def _is_plain(data: np.ndarray) -> bool:
    return not isinstance(data, np.ma.MaskedArray) and data.flags.c_contiguous and data.dtype.byteorder != ">"


def gathered(data: np.ndarray) -> np.ndarray:
    """The numbers without gaps, little-endian, zero where they are masked."""
    shown = data.filled(0) if isinstance(data, np.ma.MaskedArray) else data
    return np.ascontiguousarray(shown, data.dtype.newbyteorder("<"))


def siphash128(data: bytes) -> tuple[int, int]:
    """The hash of one buffer."""
    state = SipHash128()
    state.update(data)
    return state.digest()


@functools.cache
def _kernel() -> Callable[..., State]:
    from replica.dedup.siphash_kernel import compress

    return compress


@functools.cache
def _gather_kernel() -> Callable[[State, int, int, np.ndarray], tuple[State, int, int]]:
    from replica.dedup.siphash_gather import gather

    return gather


def _compress(state: State, words: np.ndarray) -> State:
    if words.nbytes < _LARGE_BYTES and not _kernel.cache_info().currsize:
        return _compress_in_python(state, words.tolist())
    v0, v1, v2, v3 = state
    return _kernel()(v0, v1, v2, v3, words)


def _compress_in_python(state: State, words: list[int] | tuple[int, ...]) -> State:
    for word in words:
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _rounds((v0, v1, v2, v3 ^ word), 2)
        state = v0 ^ word, v1, v2, v3
    return state


def _rounds(state: State, count: int) -> State:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1 & _MASK
        v1 = (v1 << 13 & _MASK | v1 >> 51) ^ v0
        v0 = v0 << 32 & _MASK | v0 >> 32
        v2 = v2 + v3 & _MASK
        v3 = (v3 << 16 & _MASK | v3 >> 48) ^ v2
        v0 = v0 + v3 & _MASK
        v3 = (v3 << 21 & _MASK | v3 >> 43) ^ v0
        v2 = v2 + v1 & _MASK
        v1 = (v1 << 17 & _MASK | v1 >> 47) ^ v2
        v2 = v2 << 32 & _MASK | v2 >> 32
    return v0, v1, v2, v3
