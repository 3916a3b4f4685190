"""The log is copied into the replica's own queue: in order, in growing batches, the pointer in the same multi."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from coordinator.api import Create, MultiFailed, NoNode, Operation, Set, Watch
from replica import log_puller
from replica.errors import UnexpectedNodeInZooKeeper
from replica.log_puller import LogPuller
from tests.replica.cluster import ROOT, Cluster, eventually
from tests.replica.idle import IdleReplica, fetch_of, idle_replica, system_rows

QUEUE = f"{ROOT}/replicas/r1/queue"
POINTER = f"{ROOT}/replicas/r1/log_pointer"
OLDEST = f"{ROOT}/replicas/r1/min_unprocessed_insert_time"


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    async with idle_replica(cluster, "r1") as replica:
        yield replica


async def log(r1: IdleReplica, count: int, first: int = 0) -> None:
    await r1.session.multi(
        [
            Create(f"{ROOT}/log/log-", fetch_of(f"0_{n}_{n}_0", 1000 + n).to_text().encode(), sequential=True)
            for n in range(first, first + count)
        ]
    )


def parts(r1: IdleReplica) -> list[str]:
    return [each.new_part_name for each in r1.state.queue]


def copied(multis: list[list[Operation]]) -> list[int]:
    return [sum(isinstance(each, Create) for each in multi) for multi in multis]


async def test_batches_double_up_to_a_hundred_and_keep_growing_from_pull_to_pull(r1: IdleReplica) -> None:
    await log(r1, 300)
    multis = r1.recorded_multis()
    puller = LogPuller(r1.state, r1.session)
    await puller.pull()
    assert copied(multis) == [1, 2, 4, 8, 16, 32, 64, 100, 73]
    await log(r1, 150, first=300)
    multis.clear()
    await puller.pull()
    assert copied(multis) == [100, 50]


async def test_a_batch_that_fails_has_let_the_size_grow(r1: IdleReplica) -> None:
    await log(r1, 10)
    puller = LogPuller(r1.state, r1.session)
    r1.before("multi", lambda: r1.session.delete(QUEUE))
    with pytest.raises((MultiFailed, NoNode)):
        await puller.pull()
    await r1.session.create(QUEUE)
    multis = r1.recorded_multis()
    await puller.pull()
    assert copied(multis) == [2, 4, 4]


async def test_a_copy_that_failed_has_lowered_the_oldest_time_in_memory_only(r1: IdleReplica) -> None:
    await log(r1, 1, first=5)
    r1.before("multi", lambda: r1.session.delete(QUEUE))
    with pytest.raises((MultiFailed, NoNode)):
        await LogPuller(r1.state, r1.session).pull()
    assert r1.state.queue.min_unprocessed_insert_time == 1005
    assert (await r1.session.get(OLDEST))[0] == b""


async def test_the_log_is_watched_for_him_who_asks_and_no_other(r1: IdleReplica) -> None:
    puller, watch = LogPuller(r1.state, r1.session), Watch()
    await puller.pull()
    await puller.pull(watch)
    waiting = asyncio.create_task(watch.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await log(r1, 1)
    await asyncio.wait_for(waiting, 5)


async def test_the_queue_has_the_order_and_the_very_bytes_of_the_log(r1: IdleReplica) -> None:
    # Without a time of creation that of the znode counts, but is not written into the copy.
    head = "format version: 2\ncreate_time: 1970-01-01 00:00:00\nsource replica: r9\nget\n"
    texts = [f"{head}0_{n}_{n}_0\n".encode() for n in range(20)]
    for text in texts:
        await r1.session.create(f"{ROOT}/log/log-", text, sequential=True)
    await LogPuller(r1.state, r1.session).pull()
    names = await r1.session.children(QUEUE)
    assert [(await r1.session.get(f"{QUEUE}/{name}"))[0] for name in names] == texts
    assert parts(r1) == [f"0_{n}_{n}_0" for n in range(20)]
    assert [each.znode_name for each in r1.state.queue] == names
    _, stat = await r1.session.get(f"{ROOT}/log/log-0000000000")
    assert next(iter(r1.state.queue)).entry.create_time == stat.ctime // 1000


async def test_the_pointer_moves_in_the_multi_that_copies(r1: IdleReplica) -> None:
    await log(r1, 3)
    multis = r1.recorded_multis()
    await LogPuller(r1.state, r1.session).pull()
    pointers = [[each.data for each in multi if isinstance(each, Set) and each.path == POINTER] for multi in multis]
    assert pointers == [[b"1"], [b"3"]]
    assert (await r1.session.get(POINTER))[1].version == 3, "nobody else has set it, but the first pull to 0"


async def test_a_refused_copy_leaves_pointer_znodes_and_memory_alone(r1: IdleReplica) -> None:
    await log(r1, 1)
    r1.before("multi", lambda: r1.session.delete(QUEUE))
    with pytest.raises((MultiFailed, NoNode)):
        await LogPuller(r1.state, r1.session).pull()
    assert parts(r1) == []
    assert (await r1.session.get(POINTER))[0] == b"0"


async def test_the_first_pull_starts_at_the_oldest_entry(r1: IdleReplica) -> None:
    puller = LogPuller(r1.state, r1.session)
    await log(r1, 4)
    for number in range(3):
        await r1.session.delete(f"{ROOT}/log/log-000000000{number}")
    r1.after("children", lambda: _pointer_is(r1, b""))
    r1.before("get_many", lambda: _pointer_is(r1, b"3"))
    await puller.pull()
    assert parts(r1) == ["0_3_3_0"]
    assert (await r1.session.get(POINTER))[0] == b"4"


async def _pointer_is(r1: IdleReplica, expected: bytes) -> None:
    assert (await r1.session.get(POINTER))[0] == expected


async def test_the_first_pull_of_an_empty_log_sets_the_pointer_to_0(r1: IdleReplica) -> None:
    await LogPuller(r1.state, r1.session).pull()
    await _pointer_is(r1, b"0")


async def test_an_entry_that_vanishes_in_between_fails_the_pull_whole(r1: IdleReplica) -> None:
    await log(r1, 1)
    puller = LogPuller(r1.state, r1.session)
    await puller.pull()
    await log(r1, 2, first=1)
    r1.before("get_many", lambda: r1.session.delete(f"{ROOT}/log/log-0000000001"))
    with pytest.raises(NoNode):
        await puller.pull()
    await _pointer_is(r1, b"1")
    assert parts(r1) == ["0_0_0_0"]
    await puller.pull()
    assert parts(r1) == ["0_0_0_0", "0_2_2_0"]


@pytest.mark.parametrize("name", ["zebra", "zebra-0000000007", "ape"])
@pytest.mark.parametrize("pointer", [b"", b"0"])
async def test_a_foreign_znode_in_the_log_is_refused(r1: IdleReplica, name: str, pointer: bytes) -> None:
    await r1.session.set(POINTER, pointer)
    await r1.session.create(f"{ROOT}/log/{name}", fetch_of("0_0_0_0").to_text().encode())
    if name > "log" or not pointer:  # what sorts before the entries is never read by those who know theirs
        with pytest.raises(UnexpectedNodeInZooKeeper, match=name):
            await LogPuller(r1.state, r1.session).pull()
    assert parts(r1) == []


async def test_the_oldest_waiting_insert_is_told_in_the_same_multi(r1: IdleReplica) -> None:
    await log(r1, 1, first=5)
    await log(r1, 1, first=3)
    multis = r1.recorded_multis()
    await LogPuller(r1.state, r1.session).pull()
    told = [[each.data for each in multi if isinstance(each, Set) and each.path == OLDEST] for multi in multis]
    assert told == [[b"1005"], [b"1003"]]


async def test_two_pulls_at_once_copy_each_entry_once(r1: IdleReplica) -> None:
    await log(r1, 10)
    puller = LogPuller(r1.state, r1.session)
    await asyncio.gather(puller.pull(), puller.pull())
    assert len(await r1.session.children(QUEUE)) == len(parts(r1)) == 10


async def test_a_pull_answers_with_the_version_of_the_log(r1: IdleReplica) -> None:
    await log(r1, 2)
    for _ in range(3):
        await r1.session.set(f"{ROOT}/log", b"")
    assert await LogPuller(r1.state, r1.session).pull() == 3


async def test_whoever_waits_for_the_queue_is_woken(r1: IdleReplica) -> None:
    await log(r1, 1)
    r1.state.environment = replace(r1.environment, clock=_Standing())
    await LogPuller(r1.state, r1.session).pull(Watch())
    assert r1.state.queue_changed.is_set()
    assert r1.state.last_queue_update == 77


class _Standing:
    def now(self) -> float:
        return 77


async def test_a_failed_pull_is_told_and_tried_again(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_puller, "RETRY_SECONDS", 0.01)
    await r1.session.create(f"{ROOT}/log/zebra")
    running = asyncio.create_task(LogPuller(r1.state, r1.session).run())
    await eventually(lambda: "zebra" in r1.state.last_queue_update_exception)
    (row,) = await system_rows(r1, "replicas")
    assert "zebra" in row["last_queue_update_exception"]
    await r1.session.delete(f"{ROOT}/log/zebra")
    await log(r1, 1)
    await eventually(lambda: parts(r1) == ["0_0_0_0"] or parts(r1) == ["0_1_1_0"])
    await log(r1, 1, first=7)
    await eventually(lambda: len(parts(r1)) == 2)
    await r1.session.close()
    await running
