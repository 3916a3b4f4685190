"""What must hold when a history has healed, re-derived from znodes and parts, not from a replica's own opinion."""

from __future__ import annotations

from collections import Counter

from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, InsertHistory
from coordinator.api import Session
from replica.errors import LogicalError, UnknownTable
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.server import DEFAULT_DATABASE, Server
from replica.znodes import TableZnodes


class PropertyBroken(Exception):
    """A property does not hold; the message says which, and the first evidence."""


async def check_every_acknowledged_block_once(name: str, server: Server, history: InsertHistory) -> None:
    """Each acknowledged block is on the replica exactly once, whole; each other at most once."""
    rows = await server.scan(DEFAULT_DATABASE, "t")
    copies = Counter(rows.column("k").to_pylist())
    for number in sorted(history.tried):
        found = [copies.pop(key, 0) for key in range(number * ROWS_PER_BLOCK, (number + 1) * ROWS_PER_BLOCK)]
        if max(found) > 1 or (number in history.acknowledged and min(found) < 1):
            raise PropertyBroken(f"{name}: the rows of block {number} are there {found} times, not once")
    if copies:
        raise PropertyBroken(f"{name}: rows that nobody inserted: {sorted(copies)[:5]}")


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
    on_disk = (await server.scan("system", "parts")).to_pylist()
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
