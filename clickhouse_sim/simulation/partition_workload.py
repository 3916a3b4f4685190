"""An operator who now and again drops, detaches, attaches and replaces partitions and parts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from clickhouse_sim.simulation.client import SimulatedClient
from clickhouse_sim.simulation.insert_workload import block_of
from clickhouse_sim.simulation.log_ledger import LogContradiction, LogLedger
from replica.commands import (
    AttachPartition,
    DropPart,
    DropPartition,
    InsertOptions,
    InsertStatus,
    PartitionCommand,
    ReplacePartition,
)
from replica.environment import Chance
from replica.errors import ClickHouseError
from replica.server import DEFAULT_DATABASE

SOURCE_TABLE = "s"
SOURCE_BLOCK = 1_000_000
"""The block that the table has from which partitions are replaced: no client inserts it."""

_PARTITIONS = ("0", "1")
_KINDS = ("drop", "detach", "drop part", "detach part", "attach", "replace", "truncate")


@dataclass
class PartitionHistory:
    """`unfinished`: the partitions that a statement was to drop or replace and of which nobody knows whether it did.

    Such a statement may have forgotten deduplication ids and then not dropped what they pointed to.
    """

    unfinished: set[str] = field(default_factory=set)
    done: int = 0


async def fill_source(client: SimulatedClient, replica: str) -> None:
    """Insert the one block until it is stored."""
    while True:
        try:
            outcome = await client.insert(replica, SOURCE_TABLE, InsertOptions(), block_of(SOURCE_BLOCK))
            if outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
                return
        except ClickHouseError:
            pass
        await asyncio.sleep(1)


async def change_partitions(
    client: SimulatedClient,
    chance: Chance,
    replicas: list[str],
    times: int,
    pause_seconds: int,
    ledger: LogLedger,
    history: PartitionHistory,
) -> None:
    """So many statements at drawn replicas; most of the parts that they name are there."""
    for _ in range(times):
        await asyncio.sleep(chance.choose("pause before a partition command", range(1, pause_seconds * 10)) / 10)
        command = _command(chance, ledger)
        if command is None:
            continue
        try:
            await client.execute(chance.choose("replica of a partition command", replicas), command)
            history.done += 1
        except ClickHouseError:
            if isinstance(command, DropPartition | ReplacePartition):
                history.unfinished |= {command.partition} if command.partition else set(_PARTITIONS)


def _command(chance: Chance, ledger: LogLedger) -> PartitionCommand | None:
    kind = chance.choose("partition command", _KINDS)
    partition = chance.choose("partition", _PARTITIONS)
    if kind == "attach":
        return AttachPartition(DEFAULT_DATABASE, "t", partition)
    alter_sync = chance.choose("alter_sync", (0, 1, 2))
    if kind == "replace":
        return ReplacePartition(
            DEFAULT_DATABASE, "t", DEFAULT_DATABASE, SOURCE_TABLE, partition, alter_sync=alter_sync
        )
    if kind in ("drop part", "detach part"):
        parts = _parts(ledger)
        if not parts:
            return None
        part = chance.choose("part to drop", parts)
        return DropPart(DEFAULT_DATABASE, "t", part, kind == "detach part", alter_sync)
    everything = DropPartition(DEFAULT_DATABASE, "t", detach=kind == "detach", alter_sync=alter_sync)
    return everything if kind == "truncate" else replace(everything, partition=partition)


def _parts(ledger: LogLedger) -> list[str]:
    try:
        return sorted(map(str, ledger.replay().alive))
    except LogContradiction:
        return []  # the check in the end tells
