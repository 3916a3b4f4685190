"""Cuts off the old end of the log: what every replica has copied, and what nobody is going to wait for any more.

A replica that is away holds the log back until it has missed more than `max_replicated_logs_to_keep` entries. Then it
is marked lost, and becomes a copy of another one (`replica.background.lost_replica`) when it returns. ClickHouse:
ReplicatedMergeTreeCleanupThread.cpp, `clearOldLogs`, `markLostReplicas`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.api import BadVersion, Check, Delete, MultiFailed, NoNode, Set
from replica.environment import drawn_factor
from replica.errors import AllReplicasLost, ReplicaStatusChanged
from replica.session import ServerSession
from replica.settings import MergeTreeSettings
from replica.table_state import TableState
from replica.znodes import TableZnodes

log = logging.getLogger(__name__)

_VICTIMS_IN_MULTI = 401


@dataclass(frozen=True, slots=True)
class LogReader:
    """What the znodes say of one replica; `is_lost` is None for one of a release that did not know of it."""

    name: str
    host_version: int
    log_pointer: int
    is_lost: bool | None
    is_active: bool

    @property
    def is_recovering(self) -> bool:
        """It is cloning another replica at this moment, or about to."""
        return self.is_active and self.is_lost is True

    def falls_behind(self, keep_mark: str) -> bool:
        """Whether the log need not wait for it any longer."""
        return not self.is_active and self.is_lost is False and _entry_name(self.log_pointer) < keep_mark


@dataclass(frozen=True, slots=True)
class Trimming:
    """The entries to remove, ascending, and the replicas, with their host versions, that will not see them.

    Those in `to_mark` must be marked lost before. A replica of either kind that has another host version by now is
    active again: then nothing may be removed.
    """

    victims: list[str]
    to_mark: Mapping[str, int]
    marked: Mapping[str, int]


def plan_trimming(
    log_names: Sequence[str], readers: Sequence[LogReader], settings: MergeTreeSettings
) -> Trimming | None:
    """What to cut off a log with these entries, ascending; None for nothing, and then nobody is marked either.

    Raises AllReplicasLost when it would leave no replica that is not lost.
    """
    if not log_names:
        return None
    keep_mark = log_names[max(0, len(log_names) - settings.max_replicated_logs_to_keep)]
    behind = [reader for reader in readers if reader.falls_behind(keep_mark)]
    waited_for = [reader for reader in readers if reader not in behind and (reader.is_active or not reader.is_lost)]
    if any(reader.is_recovering for reader in readers):
        waited_for += behind  # one of them may be the one that is being cloned
    victims = list(log_names[: max(0, len(log_names) - settings.min_replicated_logs_to_keep)])
    if waited_for:
        first_needed = _entry_name(min(reader.log_pointer for reader in waited_for))
        victims = [name for name in victims if name < first_needed]
    if not victims:
        return None
    if len(behind) == sum(not reader.is_lost for reader in readers):
        raise AllReplicasLost("All replicas are behind the log that is kept, or lost: no log entry is removed")
    lost = [reader for reader in readers if reader.is_lost and not reader.is_active]
    return Trimming(victims, _host_versions(behind), _host_versions(lost))


def _entry_name(number: int) -> str:
    return f"log-{number:010d}"


def _host_versions(readers: Sequence[LogReader]) -> dict[str, int]:
    return {reader.name: reader.host_version for reader in readers}


# --- in the coordination service -----------------------------------------------------------------------------


async def trim_log(state: TableState, session: ServerSession) -> int:
    """Cut off what can go now; how many entries that was.

    Raises AllReplicasLost, ReplicaStatusChanged when a replica that was to be marked lost has come back, and
    CoordinationError; the next time will see.
    """
    table, settings = state.znodes.table, state.structure.settings
    # Replicas do not all start to cut at once when the log reaches its length.
    factor = drawn_factor(state.environment.chance, "length of the log", 1.05, 1.15)
    log_stat = await session.exists(table.log)
    if log_stat is None or log_stat.num_children < int(settings.min_replicated_logs_to_keep * factor):
        return 0
    _, replicas_stat = await session.get(table.replicas)
    replicas = await session.children(table.replicas)
    log_names = await session.children(table.log)
    readers = await _read(session, table, replicas)
    trimming = plan_trimming(log_names, readers, settings)
    if trimming is None:
        return 0
    await _mark_lost(session, table, trimming.to_mark)
    checks = [Check(table.replica(name).host, version) for name, version in _all_lost(trimming)]
    return await _remove(session, table, trimming.victims, [*checks, Check(table.replicas, replicas_stat.version)])


def _all_lost(trimming: Trimming) -> list[tuple[str, int]]:
    return sorted({**trimming.to_mark, **trimming.marked}.items())


async def _read(session: ServerSession, table: TableZnodes, replicas: Sequence[str]) -> list[LogReader]:
    """One after the other, `is_active` last: whoever becomes active after that gets another host version."""
    readers = [await _read_one(session, table, name) for name in replicas]
    # A clone takes over a pointer while the others are read.
    return [
        replace(reader, log_pointer=(await _read_one(session, table, reader.name)).log_pointer)
        if reader.is_recovering
        else reader
        for reader in readers
    ]


async def _read_one(session: ServerSession, table: TableZnodes, name: str) -> LogReader:
    znodes = table.replica(name)
    host, pointer, is_lost, is_active = await session.get_many(
        [znodes.host, znodes.log_pointer, znodes.is_lost, znodes.is_active]
    )
    if host is None or pointer is None:
        raise NoNode(znodes.root)  # it is being dropped
    return LogReader(
        name,
        host[1].version,
        int(pointer[0] or b"0"),
        None if is_lost is None else is_lost[0] != b"0",
        is_active is not None,
    )


async def _mark_lost(session: ServerSession, table: TableZnodes, host_versions: Mapping[str, int]) -> None:
    for name, version in sorted(host_versions.items()):
        znodes = table.replica(name)
        try:
            await session.multi([Check(znodes.host, version), Set(znodes.is_lost, b"1")])
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                raise ReplicaStatusChanged(f"Replica {znodes.root} became active: it is not lost") from failure
            raise failure.error from failure
        log.warning("replica %s has missed too much of the log and is marked lost", znodes.root)


async def _remove(session: ServerSession, table: TableZnodes, victims: list[str], checks: list[Check]) -> int:
    removed = 0
    for batch in _batches(victims):
        try:
            await session.multi([*(Delete(table.log_entry(name)) for name in batch), *checks])
        except MultiFailed as failure:
            if isinstance(failure.error, NoNode):
                break  # another replica is removing them
            raise failure.error from failure
        removed += len(batch)
    return removed


def _batches(victims: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(victims), _VICTIMS_IN_MULTI):
        yield victims[start : start + _VICTIMS_IN_MULTI]
