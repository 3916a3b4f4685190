"""What our replicas write into the coordination service for each act, beside the transactions of a real cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from coordinator.api import Check, CheckNotExists, Create, Delete, Operation, Set
from replica.commands import DeduplicateInsert, OptimizeTable
from replica.zookeeper_log import Failure, MessageType, Multi
from tests.clickhouse_18.histories import History, histories, history
from tests.clickhouse_18.version_differences import Change, comparable_writes
from tests.replica.cluster import QUICK_CLEANUP, ROOT, Cluster, Replica, eventually, rows

# --- what ClickHouse 18.16 wrote -----------------------------------------------------------------------------


def real_writes(each: History) -> dict[tuple[str, str], list[tuple[Change, ...]]]:
    """By table and server, the writes of a scenario in their order."""
    roots = {root for moment in each.moments.values() for root in moment.table_roots}
    writes: dict[tuple[str, str], list[tuple[Change, ...]]] = {}
    for write in each.writes:
        for root in sorted(root for root in roots if write.operations and is_in(root, write.operations[0].path)):
            changes = tuple(
                (f"{op.op} ephemeral" if op.ephemeral else op.op, kind_of_znode(op.path.removeprefix(root), write.by))
                for op in write.operations
            )
            writes.setdefault((root, write.by), []).append(changes)
    return writes


def real_kinds(each: History) -> set[tuple[Change, ...]]:
    kinds = set()
    for writes in real_writes(each).values():
        kinds |= comparable_writes(after_start(writes))
    return kinds


def is_in(root: str, path: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def kind_of_znode(path: str, replica: str) -> str:
    """The path in the table, with a word for each thing that has a name."""
    path = re.sub(
        r"/(log/log|queue/queue|block|temp/abandonable_lock|leader_election/leader_election)-[0-9]*$", r"/\1-N", path
    )
    path = re.sub(r"^/(blocks|deduplication_hashes)/[^/]+$", r"/\1/ID", path)
    path = re.sub(r"^/block_numbers/[^/]+", "/block_numbers/P", path)
    path = re.sub(r"/parts/[^/]+", "/parts/PART", path)
    if path.startswith("/clickhouse/sessions/"):
        return "SESSION"
    return re.sub(r"^/replicas/([^/]+)", lambda found: f"/replicas/{'R' if found[1] == replica else 'OTHER'}", path)


# --- what ours write -----------------------------------------------------------------------------------------


def our_writes(replica: Replica, name: str) -> list[tuple[Change, ...]]:
    """All that a server wrote and that was done, so far."""
    assert replica.server._share is not None
    writes = []
    for message in replica.server._share.sessions.requests:
        if message.type is not MessageType.RESPONSE or isinstance(message.outcome, Failure):
            continue
        match message.request:
            case Multi(operations):
                writes.append(tuple(changes_of(operations, name)))
            case Create() | Delete() | Set() as operation:
                writes.append(tuple(changes_of([operation], name)))
    return writes


def changes_of(operations: Iterable[Operation], name: str) -> Iterable[Change]:
    for operation in operations:
        path = kind_of_znode(operation.path.removeprefix(ROOT), name)
        match operation:
            case Create(ephemeral=True):
                yield "create ephemeral", path
            case Create():
                yield "create", path
            case Delete():
                yield "delete", path
            case Set():
                yield "setData", path
            case Check():
                yield "check", path
            case CheckNotExists():  # what it is on a service that does not know it
                yield "create", path
                yield "delete", path


# --- side by side --------------------------------------------------------------------------------------------


def after_start(writes: list[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """What comes after a replica is active; a table is made of other znodes in each release."""
    starts = [number for number, write in enumerate(writes) if ("setData", "/replicas/R/host") in write]
    return writes[starts[0] :] if starts else []


SETTINGS = {
    **QUICK_CLEANUP,
    "cleanup_delay_period": "1",  # seconds; all that is written has to stand in system.zookeeper_log at the end
    "old_parts_lifetime": "0",
    "max_replicated_merges_in_queue": "0",
}
INSERT_TIMES = {
    ("setData", "/replicas/R/min_unprocessed_insert_time"),
    ("setData", "/replicas/R/max_processed_insert_time"),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    await cluster.close()


async def test_inserts_fetches_merges_and_copies_of_the_log(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    settings = {
        **QUICK_CLEANUP,
        "cleanup_delay_period": "1",
        "old_parts_lifetime": "0",
        "max_replicated_merges_in_queue": "0",
    }
    await cluster.create_table(settings=settings)
    r1, r2 = cluster.replicas["r1"], cluster.replicas["r2"]
    for key in (1, 2, 3, 4):
        await r1.insert(rows(key))
        once = DeduplicateInsert.DISABLE if key == 1 else DeduplicateInsert.ENABLE
        await r2.insert(rows(key + 10), deduplicate_insert=once)
    await even(cluster)
    await r1.server.execute(OptimizeTable("default", "t", final=True))
    await even(cluster)
    ours: set[tuple[Change, ...]] = set()
    for name, replica in cluster.replicas.items():
        ours |= comparable_writes(after_start(our_writes(replica, name)))
    # Which insert times change in which write is chance: every combination has to be a real one, but not all come.
    assert ours <= set().union(*map(real_kinds, histories()))
    assert {kind for kind in real_kinds(history("02-merges")) - ours if not set(kind) <= INSERT_TIMES} == set()
    assert {kind for kind in ours if set(kind) <= INSERT_TIMES}


async def even(cluster: Cluster) -> None:
    """Every replica has done the whole log, and removed what was merged."""
    session = await cluster.session()
    for name, replica in cluster.replicas.items():
        state = replica.table().state
        end = len(await session.children(f"{ROOT}/log"))
        while int((await session.get(f"{ROOT}/replicas/{name}/log_pointer"))[0] or 0) < end:
            await asyncio.sleep(0.01)
        await eventually(lambda state=state: len(state.queue) == 0)
        while await session.children(f"{ROOT}/replicas/{name}/queue"):
            await asyncio.sleep(0.01)
        while len(await session.children(f"{ROOT}/replicas/{name}/parts")) > len(await replica.active_parts()):
            await asyncio.sleep(0.01)
