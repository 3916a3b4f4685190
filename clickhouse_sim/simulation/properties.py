"""What must hold when a history has healed, re-derived from znodes and parts, not from a replica's own opinion."""

from __future__ import annotations

from collections import Counter

from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, InsertHistory
from coordinator.api import Session
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
    """All replicas have registered the same parts with the same content."""
    replicas = await session.children(table.replicas)
    registered = {}
    for replica in replicas:
        names = await session.children(table.replica(replica).parts)
        found = await session.get_many([table.replica(replica).part(name) for name in names])
        registered[replica] = {name: answer and answer[0] for name, answer in zip(names, found, strict=True)}
    first = registered[replicas[0]]
    for replica in replicas[1:]:
        if registered[replica] != first:
            differing = sorted(set(first) ^ set(registered[replica]))
            raise PropertyBroken(f"{replicas[0]} and {replica} have other parts, or other content: {differing[:5]}")


async def check_parts_on_disk(session: Session, name: str, server: Server, table: TableZnodes) -> None:
    """What a replica shows is what it has registered."""
    shown = await server.scan("system", "parts")
    active = sorted(row["name"] for row in shown.to_pylist() if row["active"])
    registered = sorted(await session.children(table.replica(name).parts))
    if active != registered:
        differing = sorted(set(active) ^ set(registered))
        raise PropertyBroken(f"{name} shows other parts than it has registered: {differing[:5]}")


async def check_nothing_left_over(session: Session, table: TableZnodes) -> None:
    """No queue entry and no lock of a block number remains."""
    for replica in await session.children(table.replicas):
        if waiting := await session.children(table.replica(replica).queue):
            raise PropertyBroken(f"{replica} still has {waiting[:5]} in its queue")
    for partition in await session.children(table.block_numbers):
        if locks := await session.children(table.partition(partition)):
            raise PropertyBroken(f"partition {partition} still has the locks {locks[:5]}")
