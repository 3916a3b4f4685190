"""Work that must not stop half way when the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, or what it raises. A cancellation waits until it is done, and then goes on."""
    working = asyncio.create_task(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # seen: nobody is left who wants to know
        raise
