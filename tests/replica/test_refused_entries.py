"""Entries of types that nobody writes any more, or that this model lacks: kept, shown, refused, in nobody's way."""

from __future__ import annotations

import asyncio

import pytest

from replica.log_entry import EntryType, LogEntry
from tests.replica.cluster import ROOT, Cluster, eventually, rows

CLEAR = "format version: 4\ncreate_time: 2019-05-01 00:00:00\nsource replica: r1\nblock_id: \n"
MOVES = "format version: 7\ncreate_time: 2026-01-15 10:26:00\nsource replica: r1\nblock_id: \nlog_entry_id: 1c2d\n"
TEXTS = {
    EntryType.CLEAR_COLUMN: f"{CLEAR}clear_column\nmy\\tcol\nfrom\n0_0_9_999999999\n",
    EntryType.CLEAR_INDEX: f"{CLEAR}clear_index\nit\\'s\nfrom\n0_0_9_999999999\n",
    EntryType.SYNC_PINNED_PART_UUIDS: f"{MOVES}sync_pinned_part_uuids\n\n",
    EntryType.CLONE_PART_FROM_SHARD: f"{MOVES}clone_part_from_shard\n0_0_0_0\nsource_shard: /tables/02/t\n",
    EntryType.MUTATE_PART: f"{CLEAR}mutate\n0_0_0_0\nto\n0_0_0_0_7\n",
    EntryType.ALTER_METADATA: (
        f"{CLEAR}alter\nalter_version\n1\nhave_mutation\n0\ncolumns_str_size:\n2\nab\nmetadata_str_size:\n0\n\n"
    ),
}
REFUSALS = {
    EntryType.CLEAR_COLUMN: "Unexpected log entry type: CLEAR_COLUMN (queue-0000000000)",
    EntryType.CLEAR_INDEX: "Unexpected log entry type: CLEAR_INDEX (queue-0000000000)",
}


@pytest.mark.parametrize("kind", TEXTS)
async def test_it_is_kept_refused_by_name_and_holds_nobody(cluster: Cluster, kind: EntryType) -> None:
    text = TEXTS[kind]
    assert LogEntry.parse(text).to_text() == text
    r1 = await cluster.start("r1")
    r2 = await cluster.start("r2")
    await cluster.create_table(partition_by="")
    session = await cluster.session()
    await session.create(f"{ROOT}/log/log-", text.encode(), sequential=True)
    state = r2.table().state
    await eventually(lambda: len(state.queue) == 1 and next(iter(state.queue)).last_exception != "")
    expected = REFUSALS.get(kind, f"Log entry queue-0000000000 is {kind}, which this model cannot execute")
    (row,) = (await r2.server.scan("system", "replication_queue")).to_pylist()
    assert row["last_exception"].startswith(expected)
    assert (row["type"], row["node_name"], row["num_tries"] >= 1) == (kind, "queue-0000000000", True)
    assert (await session.get(f"{ROOT}/replicas/r2/queue/queue-0000000000"))[0] == text.encode()

    await r1.insert(rows(2))
    await r1.insert(rows(4))
    await eventually(lambda: len(state.store.active_parts()) == 2)
    await eventually(lambda: len(state.queue) == 1)
    assert [each.entry.type for each in state.queue] == [kind]
    assert all(not pool.running for pool in (state.server.pools.common, state.server.pools.merges_mutations))


async def test_removed_from_the_queue_it_is_gone_with_the_next_start(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    session = await cluster.session()
    await session.create(f"{ROOT}/log/log-", TEXTS[EntryType.CLEAR_INDEX].encode(), sequential=True)
    await eventually(lambda: len(r1.table().state.queue) == 1)
    await cluster.stop("r1")
    await session.delete(f"{ROOT}/replicas/r1/queue/queue-0000000000")
    await cluster.start("r1")
    await cluster.settled()
    await asyncio.sleep(0)
