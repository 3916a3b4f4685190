"""Log entries that a statement has written, and the wait for them, as `alter_sync` says.

ClickHouse: StorageReplicatedMergeTree.cpp, `waitForReplicaToProcessLogEntry`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.api import NoNode, Result, SessionLost, Watch
from replica.errors import BadArguments, TimeoutExceeded, Unfinished
from replica.log_entry import LogEntry
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import ReplicaZnodes, sequence_number

_LONGEST_WAIT_SECONDS = 600.0
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry in the log: its number there, and the text that replicas copy into their queues."""

    number: int
    text: str

    @classmethod
    def made(cls, entry: LogEntry, result: Result) -> Logged:
        """The entry whose znode has this path, as the multi that made it has answered."""
        return cls(sequence_number(str(result)), entry.to_text())


def check_alter_sync(alter_sync: int) -> None:
    """Raises BadArguments."""
    if alter_sync not in (0, 1, 2):
        raise BadArguments(f"setting alter_sync is 0, 1 or 2, not {alter_sync}")


async def wait_until_done(state: TableState, entries: Sequence[Logged], alter_sync: int) -> None:
    """Return when this replica (1) or every replica (2) has carried the entries out; at once for 0.

    Raises Unfinished, with the names, when replicas are inactive for `replication_wait_for_inactive_replica_timeout`
    seconds, and TimeoutExceeded; what is in the log happens nevertheless.
    """
    table = state.znodes.table
    names = [state.znodes.name] if alter_sync else []
    if alter_sync == 2:
        session = await state.server.sessions.live()
        names += [name for name in await session.children(table.replicas) if name != state.znodes.name]
    patience = state.server.settings.replication_wait_for_inactive_replica_timeout
    done = await asyncio.gather(*(_all_done(state, table.replica(name), entries, patience) for name in names))
    inactive = [name for name, is_done in zip(names, done, strict=True) if not is_done]
    if inactive:
        raise Unfinished(
            f"It is in the log, but {', '.join(inactive)} is not active and has not carried it out within "
            f"{patience:g} s (replication_wait_for_inactive_replica_timeout); it will once it is back"
        )


async def _all_done(state: TableState, replica: ReplicaZnodes, entries: Sequence[Logged], patience: float) -> bool:
    for entry in entries:
        if not await _done(state, replica, entry, patience):
            return False
    return True


async def _done(state: TableState, replica: ReplicaZnodes, entry: Logged, patience: float) -> bool:
    """Wait until the replica has carried the entry out; False when it is inactive for too long."""
    clock = asyncio.get_running_loop().time
    give_up, inactive_since = clock() + _LONGEST_WAIT_SECONDS, None
    while clock() < give_up:
        session = await state.server.sessions.live()
        try:
            change = await _next_change(session, replica, entry)
            if change is None:
                return True
            if await session.exists(replica.is_active) is not None:
                inactive_since = None
            elif inactive_since is None:
                inactive_since = clock()
        except NoNode:
            return True  # it was dropped meanwhile
        except SessionLost:
            continue
        if inactive_since is not None and clock() >= inactive_since + patience:
            return False
        await _wait(change)
    raise TimeoutExceeded(
        f"It is in the log, but {replica.name} has not carried it out after {_LONGEST_WAIT_SECONDS:g} s; "
        "system.replication_queue there says why"
    )


async def _next_change(session: ServerSession, replica: ReplicaZnodes, entry: Logged) -> Watch | None:
    """When to look again whether the replica has copied the entry and has it in its queue no more; None if so."""
    change = Watch()
    pointer, _ = await session.get(replica.log_pointer, change)
    if int(pointer or b"0") <= entry.number:
        return change
    names = await session.children(replica.queue)
    found = await session.get_many([replica.queue_entry(name) for name in names])
    for name, answer in zip(names, found, strict=True):
        if answer is not None and answer[0] == entry.text.encode():
            change = Watch()
            return None if await session.exists(replica.queue_entry(name), change) is None else change
    return None


async def _wait(change: Watch) -> None:
    try:
        async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
            await change.wait()
    except TimeoutError:
        pass
