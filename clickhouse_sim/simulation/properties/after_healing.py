"""What must hold when a history has healed, re-derived from znodes and parts, not from a replica's own opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.insert_workload import InsertHistory, block_of
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from coordinator.api import Session
from replica.dedup.block_id import block_id, insert_extension
from replica.errors import LogicalError, UnknownTable
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.server import DEFAULT_DATABASE, Server
from replica.znodes import TableZnodes

ONCE = "every acknowledged block is there exactly once"
LOSS = "what is lost for ever is told"
WINDOW = "an id stays as long as the window holds it"
EQUAL = "replicas have equal parts"
ON_DISK = "what is registered is on the disk"
QUEUE = "virtual parts are current parts and the queue"
SETTINGS = "what was altered and reset is as it was created"
NOTHING_LEFT = "queues drain and locks go"


async def check_every_acknowledged_block_once(
    name: str, server: Server, history: InsertHistory, forgotten: Mapping[str, int], gone: Set[int]
) -> int:
    """Each acknowledged block is on the replica exactly once, whole; each other at most once.

    `forgotten` says how many times each deduplication id was forgotten: so many times more its rows may be there.
    Only rows whose keys are in `gone` may be missing; how many of those are.
    """
    missing = 0
    copies = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    structure = server.table(DEFAULT_DATABASE, "t").state.structure
    for number in sorted(history.tried):
        for partition_id, rows in structure.partition_key.split(block_of(number)):
            found = [copies.pop(key, 0) for key in rows.column("k").to_pylist()]
            extension = insert_extension(block_of(number), structure.schema, 0)
            most = 1 + forgotten.get(block_id(partition_id, extension), 0)
            absent = [key for key, times in zip(rows.column("k").to_pylist(), found, strict=True) if not times]
            is_due = number in history.acknowledged
            missing += len(absent) if is_due else 0
            if max(found) > most or (is_due and not gone >= set(absent)):
                raise PropertyBroken(
                    ONCE,
                    f"{name}: the rows of block {number} in partition {partition_id} are there {found} times, "
                    f"not 1 to {most}",
                )
    if copies:
        raise PropertyBroken(ONCE, f"{name}: rows that nobody inserted: {sorted(copies)[:5]}")
    return missing


async def check_loss_is_told(session: Session, table: TableZnodes, missing: int, gone: Set[int]) -> None:
    """The table counts lost parts if acknowledged rows are missing, and only if some were destroyed everywhere."""
    value, _ = await session.get(table.lost_part_count)
    lost = int(value or b"0")
    if missing and not lost:
        raise PropertyBroken(LOSS, f"{missing} acknowledged rows are missing, but lost_part_count is 0")
    if lost and not gone:
        raise PropertyBroken(LOSS, f"{lost} parts were given up as lost, but no row was destroyed everywhere")


def check_forgotten(ledger: DeduplicationLedger, server: Server, history: InsertHistory, gone: Set[int]) -> None:
    """Every deduplication id stayed as long as the window held it, but those of blocks that are gone."""
    if not ledger.too_early:
        return
    excused = _ids_of_gone(server, history, gone)
    if too_early := [name for name, _ in ledger.too_early if name not in excused]:
        raise PropertyBroken(WINDOW, f"forgotten inside of the window: {too_early[:5]}")


def _ids_of_gone(server: Server, history: InsertHistory, gone: Set[int]) -> set[str]:
    structure = server.table(DEFAULT_DATABASE, "t").state.structure
    ids = set()
    for number in sorted(history.tried):
        extension = insert_extension(block_of(number), structure.schema, 0)
        for partition_id, rows in structure.partition_key.split(block_of(number)):
            if gone >= set(rows.column("k").to_pylist()):
                ids.add(block_id(partition_id, extension))
    return ids


async def check_equal_parts(session: Session, table: TableZnodes) -> None:
    """All replicas have the same maximal parts, and parts of one name have one content wherever they are."""
    contents: dict[str, bytes] = {}
    maximal: dict[str, list[PartName]] = {}
    for replica in await session.children(table.replicas):
        names = await session.children(table.replica(replica).parts)
        maximal[replica] = list(PartSet(map(PartName.parse, names)))
        found = await session.get_many([table.replica(replica).part(name) for name in names])
        for name, answer in zip(names, found, strict=True):
            if answer is not None and contents.setdefault(name, answer[0]) != answer[0]:
                raise PropertyBroken(EQUAL, f"part {name} of {replica} has other content than elsewhere")
    (first, parts), *others = maximal.items()
    for replica, other_parts in others:
        if other_parts != parts:
            differing = sorted(set(parts) ^ set(other_parts))
            raise PropertyBroken(
                EQUAL, f"{first} and {replica} have other parts: {', '.join(map(str, differing[:5]))}"
            )


async def check_parts_on_disk(session: Session, name: str, server: Server, table: TableZnodes) -> None:
    """A replica has what it has registered; what it shows is registered. Only outdated parts may lose their znode."""
    on_disk = [row for row in (await server.scan("system", "parts")).to_pylist() if row["table"] == "t"]
    registered = await session.children(table.replica(name).parts)
    if missing := sorted(set(registered) - {row["name"] for row in on_disk}):
        raise PropertyBroken(ON_DISK, f"{name} has registered parts that it does not have: {missing[:5]}")
    if unregistered := sorted({row["name"] for row in on_disk if row["active"]} - set(registered)):
        raise PropertyBroken(ON_DISK, f"{name} shows parts that it has not registered: {unregistered[:5]}")


def check_queue(name: str, server: Server) -> None:
    """`virtual_parts = current_parts + queue`, and no two active parts overlap."""
    try:
        state = server.table(DEFAULT_DATABASE, "t").state
    except UnknownTable:
        return  # not made yet, or not loaded after a start
    try:
        state.queue.check_invariant()
        PartSet(part.name for part in state.store.active_parts())
    except LogicalError as problem:
        raise PropertyBroken(QUEUE, f"{name}: {problem}") from problem


def check_settings(name: str, server: Server, expected: Mapping[str, str]) -> None:
    """A replica has the settings that it was created with, once every alteration was taken back."""
    found = server.table(DEFAULT_DATABASE, "t").definition.settings
    if found != expected:
        raise PropertyBroken(SETTINGS, f"{name} has the settings {dict(found)}, not {dict(expected)}")


async def check_nothing_left_over(session: Session, table: TableZnodes) -> None:
    """No queue entry and no lock of a block number remains."""
    for replica in await session.children(table.replicas):
        if waiting := await session.children(table.replica(replica).queue):
            raise PropertyBroken(NOTHING_LEFT, f"{replica} still has {waiting[:5]} in its queue")
    for partition in await session.children(table.block_numbers):
        if locks := await session.children(table.partition(partition)):
            raise PropertyBroken(NOTHING_LEFT, f"partition {partition} still has the locks {locks[:5]}")
