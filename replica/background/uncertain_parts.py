"""Decides about parts of which it is not known whether their commit was applied.

Under a later session the old commit can no longer arrive, so one look at the part's znode settles it. ClickHouse
queues a part check for about five minutes later; the verdict is the same.
"""

from __future__ import annotations

import logging

from coordinator.api import SessionLost
from replica.session import ServerSession
from replica.storage.part_store import StoredPart
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def settle_uncertain_parts(state: TableState, session: ServerSession) -> None:
    """Let each such part count if it is registered, else move it to `detached/`; until the session is lost."""
    try:
        while True:
            await state.uncertain_parts.wait()
            for name, only_copy in state.uncertain_parts:
                registered = await session.exists(state.znodes.part(str(name))) is not None
                state.uncertain_parts.settle(name)
                part = state.store.pre_active(name)
                if part is None:
                    continue
                if registered:
                    state.activate(part)
                    continue
                log.warning("%s: part %s was never committed", state.full_name, name)
                await _put_away(state, part, only_copy)
    except SessionLost:
        return


async def _put_away(state: TableState, part: StoredPart, only_copy: bool) -> None:
    try:
        if only_copy:
            await state.store.detach(part, "ignored")
        else:
            await state.store.delete(part)
    except OSError as problem:
        log.error("%s: cannot put part %s away: %s", state.full_name, part.name, problem)
