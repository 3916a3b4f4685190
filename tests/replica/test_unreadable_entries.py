"""Log entries that a replica cannot read, or is too old for: it stops before them, says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from coordinator.api import Session
from replica import log_puller
from replica.background import restart
from replica.background.lost_replica import clone_if_lost
from replica.catalog import Catalog
from replica.commands import DeduplicateInsert, OptimizeTable
from replica.errors import (
    BadArguments,
    BadDataPartName,
    CannotParseText,
    NotImplementedInModel,
    SupportIsDisabled,
    UnexpectedNodeInZooKeeper,
    UnknownFormatVersion,
)
from replica.log_entry import EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.part_name import PartName
from replica.settings import MergeTreeSettings
from replica.storage.disk import LocalDisk
from tests.replica.cluster import ROOT, Cluster, Replica, definition, eventually, rows
from tests.replica.idle import HOST, IdleReplica, fetch_of, idle_replica

POINTER = f"{ROOT}/replicas/r1/log_pointer"
HEAD = "format version: 4\ncreate_time: 2026-01-15 10:20:30\nsource replica: r9\nblock_id: \n"
UNREADABLE = {
    "version 8": (
        b"format version: 8\n" + HEAD.encode().split(b"\n", 1)[1] + b"get\n0_7_7_0\n",
        UnknownFormatVersion,
    ),
    "no version": (b"format version: 0\n", UnknownFormatVersion),
    "unknown type": (HEAD.encode() + b"teleport\n0_7_7_0\n", CannotParseText),
    "left over": (HEAD.encode() + b"get\n0_7_7_0\nand more\n", CannotParseText),
    "empty": (b"", CannotParseText),
    "no text": (b"\xff\x00", CannotParseText),
    "no part": (HEAD.encode() + b"get\n../../etc\n", BadDataPartName),
    "merge of a later release": (
        HEAD.encode() + b"merge\n0_0_0_0\ninto\n0_0_0_1\ndeduplicate: 0\nmerge_type: 9\n",
        NotImplementedInModel,
    ),
}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_puller, "RETRY_SECONDS", 0.02)


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    async with idle_replica(cluster, "r1") as replica:
        yield replica


async def log(session: Session, *parts: str) -> None:
    for part in parts:
        await session.create(f"{ROOT}/log/log-", fetch_of(part).to_text().encode(), sequential=True)


async def log_bytes(session: Session, data: bytes) -> str:
    return await session.create(f"{ROOT}/log/log-", data, sequential=True)


def queued(r1: IdleReplica) -> list[str]:
    return [each.new_part_name for each in r1.state.queue]


# --- the log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_stands_before_it_in_its_batch_is_copied_and_nothing_behind_it(r1: IdleReplica, case: str) -> None:
    data, error = UNREADABLE[case]
    puller = LogPuller(r1.state, r1.session)
    await log(r1.session, *(f"0_{n}_{n}_0" for n in range(7)))
    await puller.pull()  # the next batch takes 8
    await log(r1.session, "0_10_10_0", "0_11_11_0")
    bad = await log_bytes(r1.session, data)
    await log(r1.session, "0_12_12_0")
    for _ in range(3):
        with pytest.raises(error, match=bad) as raised:
            await puller.pull()
        assert "orrect or remove the znode" in str(raised.value)
        assert queued(r1)[7:] == ["0_10_10_0", "0_11_11_0"], "good ones are copied, and once only"
        assert (await r1.session.get(POINTER))[0] == b"9"
    assert len(await r1.session.children(f"{ROOT}/replicas/r1/queue")) == 9
    r1.state.queue.check_invariant()


async def test_pulling_goes_on_once_it_is_corrected(r1: IdleReplica) -> None:
    puller = LogPuller(r1.state, r1.session)
    bad = await log_bytes(r1.session, b"nonsense")
    await log(r1.session, "0_1_1_0")
    with pytest.raises(CannotParseText):
        await puller.pull()
    assert queued(r1) == []
    await r1.session.set(bad, fetch_of("0_0_0_0").to_text().encode())
    await puller.pull()
    assert queued(r1) == ["0_0_0_0", "0_1_1_0"]
    assert (await r1.session.get(POINTER))[0] == b"2"


async def test_a_foreign_znode_behind_the_entries_does_not_hold_them(r1: IdleReplica) -> None:
    puller = LogPuller(r1.state, r1.session)
    await log(r1.session, "0_0_0_0", "0_1_1_0", "0_2_2_0")
    await r1.session.create(f"{ROOT}/log/zebra")
    with pytest.raises(UnexpectedNodeInZooKeeper, match=f"unexpected node zebra in {ROOT}/log: remove it"):
        await puller.pull()
    assert queued(r1) == ["0_0_0_0", "0_1_1_0", "0_2_2_0"]


@pytest.mark.parametrize("text", [b"seven", b"-1", "٣".encode(), b"1.5"])
async def test_a_pointer_that_is_no_number_is_told(r1: IdleReplica, text: bytes) -> None:
    await r1.session.set(POINTER, text)
    with pytest.raises(CannotParseText, match="log_pointer holds"):
        await LogPuller(r1.state, r1.session).pull()


async def test_a_running_replica_tells_it_takes_inserts_and_goes_on_by_itself(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    session = await cluster.session()
    bad = await log_bytes(session, b"format version: 99\n")
    state = r1.table().state
    await eventually(lambda: bad in state.last_queue_update_exception)
    await r1.insert(rows(2))
    assert await r1.count() == 1
    assert not state.is_readonly
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert "format version: 99" in row["last_queue_update_exception"]
    assert "upgrade it" in row["last_queue_update_exception"]
    assert (row["log_pointer"], row["queue_size"]) == (0, 0)
    with pytest.raises(UnknownFormatVersion):
        await r1.server.execute(OptimizeTable("default", "t", final=True))
    await session.delete(bad)
    await cluster.settled()
    while (await session.get(POINTER))[0] != b"2":
        await asyncio.sleep(0.01)
    assert bad in state.last_queue_update_exception, "a later success leaves the text, as in ClickHouse"


# --- the own queue, and the one that is cloned ---------------------------------------------------------------


@pytest.mark.parametrize("where", ["queue", "log"])
async def test_with_an_unreadable_entry_at_its_start_the_table_is_readable_and_says_why(
    cluster: Cluster, where: str
) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    await r1.insert(rows(2))
    await cluster.settled()
    await cluster.stop("r1")
    session = await cluster.session()
    folder = f"{ROOT}/replicas/r1/queue/queue-" if where == "queue" else f"{ROOT}/log/log-"
    bad = await session.create(folder, b"nonsense", sequential=True)
    r1 = await cluster.start("r1")
    await eventually(lambda: bad in r1.table().state.readonly_reason)
    assert await r1.count() == 1
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert row["is_readonly"] == 1
    assert bad in row["zookeeper_exception"]
    await session.delete(bad)
    await cluster.writable()
    await r1.insert(rows(4))


async def test_a_queue_is_loaded_whole_or_not_at_all(r1: IdleReplica) -> None:
    r1.state.queue.insert("queue-0000000077", fetch_of("0_9_9_0"))
    await r1.session.create(
        f"{ROOT}/replicas/r1/queue/queue-", fetch_of("0_0_0_0").to_text().encode(), sequential=True
    )
    bad = await r1.session.create(f"{ROOT}/replicas/r1/queue/queue-", b"nonsense", sequential=True)
    with pytest.raises(CannotParseText, match=bad):
        await restart._activate(r1.state, r1.session, HOST, "me")
    assert queued(r1) == ["0_9_9_0"]


async def test_an_unreadable_entry_in_the_queue_that_is_cloned_is_told(cluster: Cluster, r1: IdleReplica) -> None:
    bad = await r1.session.create(f"{ROOT}/replicas/r1/queue/queue-", b"nonsense", sequential=True)
    async with idle_replica(cluster, "r2") as r2:
        with pytest.raises(CannotParseText, match=bad):
            await clone_if_lost(r2.state, r2.session)
        assert (await r2.session.get(f"{ROOT}/replicas/r2/is_lost"))[0] == b"1"
        await r1.session.delete(bad)
        await clone_if_lost(r2.state, r2.session)
        assert (await r2.session.get(f"{ROOT}/replicas/r2/is_lost"))[0] == b"0"


# --- an older release ----------------------------------------------------------------------------------------

BY_K_AND_V = OptimizeTable("default", "t", final=True, deduplicate=True, deduplicate_by=("k", "v"))
QUIET = {"merge_selecting_sleep_ms": "3600000", "max_merge_selecting_sleep_ms": "3600000"}
OLD = {**QUIET, "max_log_entry_format_version": "5"}


@pytest.mark.parametrize("value", ["0", "3", "8", "99"])
def test_no_replica_is_older_than_what_an_insert_needs_or_newer_than_the_newest(value: str) -> None:
    with pytest.raises(BadArguments, match=r"must be at (least 4|most 7)"):
        MergeTreeSettings.from_text({"max_log_entry_format_version": value})


@pytest.mark.parametrize("newest", [4, 5, 6, 7])
async def test_an_entry_is_read_up_to_the_version_of_the_replica(cluster: Cluster, newest: int) -> None:
    settings = {"max_log_entry_format_version": str(newest)}
    part = PartName.parse("0_0_1_1")
    entry = LogEntry(EntryType.MERGE_PARTS, 1000, "r9", new_part=part)
    made = [
        entry,
        replace(entry, new_part_uuid="6f0c1f6e-2a52-4a35-9c0c-0d8a1a6a7b11"),
        replace(entry, deduplicate_by_columns=("k",)),
        replace(entry, log_entry_id="x"),
    ]
    async with idle_replica(cluster, "r1", settings=settings) as r1:
        for each in made:
            await log_bytes(r1.session, each.to_text().encode())
        puller = LogPuller(r1.state, r1.session)
        refused = pytest.raises(UnknownFormatVersion, match=f"reads versions up to {newest}")
        with refused if newest < 7 else contextlib.nullcontext():
            await puller.pull()
        assert [each.entry.written_format_version for each in r1.state.queue] == list(range(4, newest + 1))


async def upgraded(cluster: Cluster, name: str) -> Replica:
    """The replica after an end, a change of its table's definition, and a start."""
    await cluster.stop(name)
    disk = LocalDisk(cluster.folder / name)
    (table,) = await Catalog(disk).load()
    await Catalog(disk).add(replace(table, settings=QUIET))
    return await cluster.start(name)


async def test_a_rolling_upgrade(cluster: Cluster) -> None:
    """Both are old; r2 is upgraded and uses what is new; r1 waits for its upgrade, and takes inserts meanwhile."""
    r1, r2 = await cluster.start("r1"), await cluster.start("r2")
    for replica in (r1, r2):
        await replica.server.execute(definition(partition_by="", settings=OLD))
    await cluster.writable()
    await r1.insert(rows(1, 2))
    await r2.insert(rows(1, 2), deduplicate_insert=DeduplicateInsert.DISABLE)
    for replica in (r1, r2):
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 2)
    await cluster.settled()

    for old in (r1, r2):
        with pytest.raises(SupportIsDisabled, match="needs log entry format version 6, and this replica writes"):
            await old.server.execute(BY_K_AND_V)
    session = await cluster.session()
    assert len(await session.children(f"{ROOT}/log")) == 2, "nothing was written"

    r2 = await upgraded(cluster, "r2")
    await cluster.writable()
    await r2.server.execute(BY_K_AND_V)
    assert await r2.active_parts() == ["all_0_1_1"]
    state = r1.table().state
    await eventually(lambda: "log-0000000002" in state.last_queue_update_exception)
    assert "raise max_log_entry_format_version" in state.last_queue_update_exception
    await r1.insert(rows(3))
    await eventually(lambda: r2.table().state.store.active_containing(PartName.parse("all_2_2_0")) is not None)
    assert (await r1.count(), await r2.count()) == (5, 3), "the old one has still both"
    with pytest.raises(UnknownFormatVersion):
        await r1.server.execute(OptimizeTable("default", "t", final=True))
    assert (await session.get(POINTER))[0] == b"2"

    r1 = await upgraded(cluster, "r1")
    await cluster.writable()
    await cluster.settled()
    for replica in (r1, r2):
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 2)
    assert await r1.active_parts() == await r2.active_parts() == ["all_0_1_1", "all_2_2_0"]
    assert (await r1.count(), await r2.count()) == (3, 3)
