"""The inner loop of SipHash-2-4, compiled by numba.

numba and not an extension module: it comes as a wheel, so that the package installs where there is no compiler,
and runs as fast. Importing this module costs the import of numba and, the first time, a second of compiling;
`replica.dedup.siphash` does so only when there is enough to hash.

The machine code is kept where numba finds a place to write: beside this file, else in the user's cache folder.
Where there is neither, each process compiles for itself. A shared temporary folder is no place for it: whoever
can write there could slip in code of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numba
import numpy as np

from replica.dedup.siphash import State

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]


def _compress(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, words: Words) -> tuple[np.uint64, ...]:
    """The state after two rounds with each of the words."""
    for word in words:
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


# One signature takes every buffer: an aligned or writable one passes as unaligned and read-only.
_SIGNATURE = "UniTuple(u8, 4)(u8, u8, u8, u8, Array(u8, 1, 'C', readonly=True, aligned=False))"


def _compiled() -> Callable[..., State]:
    try:
        kernel = numba.njit(_SIGNATURE, cache=True)(_compress)
    except (RuntimeError, OSError):
        kernel = numba.njit(_SIGNATURE)(_compress)
    return cast(Callable[..., State], kernel)


compress = _compiled()
