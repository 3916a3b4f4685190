"""What must hold when a history has healed, re-derived from znodes and parts, not from a replica's own opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.insert_workload import InsertHistory, block_of
from clickhouse_sim.simulation.log_ledger import Replay
from coordinator.api import Session
from replica.dedup.block_id import block_id, insert_extension
from replica.errors import LogicalError, UnknownTable
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.server import DEFAULT_DATABASE, Server
from replica.table_structure import TableStructure
from replica.znodes import TableZnodes


class PropertyBroken(Exception):
    """A property does not hold; the message says which, and the first evidence."""


async def check_every_acknowledged_block_once(
    name: str, server: Server, history: InsertHistory, forgotten: Mapping[str, int]
) -> None:
    """Each acknowledged block is on the replica exactly once, whole; each other at most once.

    `forgotten` says how many times each deduplication id was forgotten: so many times more its rows may be there.
    """
    copies = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    structure = server.table(DEFAULT_DATABASE, "t").state.structure
    for number in sorted(history.tried):
        for partition_id, rows in structure.partition_key.split(block_of(number)):
            found = [copies.pop(key, 0) for key in rows.column("k").to_pylist()]
            extension = insert_extension(block_of(number), structure.schema, 0)
            most = 1 + forgotten.get(block_id(partition_id, extension), 0)
            if max(found) > most or (number in history.acknowledged and min(found) < 1):
                raise PropertyBroken(
                    f"{name}: the rows of block {number} in partition {partition_id} are there {found} times, "
                    f"not 1 to {most}"
                )
    if copies:
        raise PropertyBroken(f"{name}: rows that nobody inserted: {sorted(copies)[:5]}")


def check_forgotten(ledger: DeduplicationLedger) -> None:
    """Every deduplication id stayed as long as the window held it."""
    if ledger.too_early:
        raise PropertyBroken(f"forgotten inside of the window: {ledger.too_early[:5]}")


def check_forgotten_with_parts(ledger: DeduplicationLedger, replay: Replay, unfinished: set[str]) -> None:
    """An id went before its time only if its part was dropped, or was to be by a statement of unknown end; and no id
    is left of a part that was dropped."""
    for name, text in ledger.too_early:
        part = PartName.parse(text)
        if replay.holds(part) and part.partition_id not in unfinished:
            raise PropertyBroken(f"forgotten inside of the window: {name}, and the rows of {part} are still there")
    for name, text in ledger.parts().items():
        if not replay.holds(PartName.parse(text)):
            raise PropertyBroken(f"the id {name} would refuse rows that are not there: {text} was dropped")


async def check_rows_of_log(name: str, server: Server, replay: Replay) -> None:
    """The replica shows exactly the rows that the log leaves."""
    shown = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    if shown != replay.rows():
        less, more = sorted((replay.rows() - shown).items()), sorted((shown - replay.rows()).items())
        raise PropertyBroken(f"{name} lacks the rows {less[:5]} of the log, and has {more[:5]} that it does not have")


def check_acknowledged_are_in_log(
    structure: TableStructure, history: InsertHistory, replay: Replay, forgotten: Mapping[str, int]
) -> None:
    """Each acknowledged block came in, and once only unless its id was forgotten; so did each other, or not at all.

    With the rows of the log being there and no others, a block that came in is there until its part is dropped.
    """
    for number in sorted(history.tried):
        extension = insert_extension(block_of(number), structure.schema, 0)
        for partition_id, _ in structure.partition_key.split(block_of(number)):
            id = block_id(partition_id, extension)
            times, most = replay.inserted[id], 1 + forgotten.get(id, 0)
            if times > most or (number in history.acknowledged and times < 1):
                raise PropertyBroken(
                    f"block {number} came into partition {partition_id} {times} times, not 1 to {most}"
                )


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
                raise PropertyBroken(f"part {name} of {replica} has other content than elsewhere")
    (first, parts), *others = maximal.items()
    for replica, other_parts in others:
        if other_parts != parts:
            differing = sorted(set(parts) ^ set(other_parts))
            raise PropertyBroken(f"{first} and {replica} have other parts: {', '.join(map(str, differing[:5]))}")


async def check_parts_on_disk(session: Session, name: str, server: Server, table: TableZnodes) -> None:
    """A replica has what it has registered; what it shows is registered. Only outdated parts may lose their znode."""
    on_disk = [row for row in (await server.scan("system", "parts")).to_pylist() if row["table"] == "t"]
    registered = await session.children(table.replica(name).parts)
    if missing := sorted(set(registered) - {row["name"] for row in on_disk}):
        raise PropertyBroken(f"{name} has registered parts that it does not have: {missing[:5]}")
    if unregistered := sorted({row["name"] for row in on_disk if row["active"]} - set(registered)):
        raise PropertyBroken(f"{name} shows parts that it has not registered: {unregistered[:5]}")


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
        raise PropertyBroken(f"{name}: {problem}") from problem


async def check_nothing_left_over(session: Session, table: TableZnodes) -> None:
    """No queue entry and no lock of a block number remains."""
    for replica in await session.children(table.replicas):
        if waiting := await session.children(table.replica(replica).queue):
            raise PropertyBroken(f"{replica} still has {waiting[:5]} in its queue")
    for partition in await session.children(table.block_numbers):
        if locks := await session.children(table.partition(partition)):
            raise PropertyBroken(f"partition {partition} still has the locks {locks[:5]}")
