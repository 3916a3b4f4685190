"""The queue is drained: slots of pools, failures that are put off and tried again, removal of what is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from coordinator.api import SessionLost
from replica import executor
from replica.errors import Aborted, ChecksumDoesntMatch, NoReplicaHasPart, PartIsTemporarilyLocked
from replica.executor import Executor
from replica.log_entry import EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.operations.not_done import NotDone
from replica.part_name import PartName
from replica.pools import Pool, Pools
from replica.queue import QueuedEntry
from replica.settings import ServerSettings
from tests.replica.cluster import ROOT, Cluster, eventually
from tests.replica.idle import IdleReplica, fetch_of, idle_replica, piece_of, system_rows

# Without sources, that it need not be fetched for want of them.
MERGE = LogEntry(EntryType.MERGE_PARTS, 1000, "r9", new_part=PartName.parse("0_0_1_1"))
DROP = LogEntry(EntryType.DROP_RANGE, 1000, "r9", new_part=PartName.parse("0_0_5_999999999"))


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    cluster.settings = ServerSettings(background_fetches_pool_size=1)
    async with idle_replica(cluster, "r1") as replica:
        yield replica


@contextlib.asynccontextmanager
async def executing(r1: IdleReplica, *entries: LogEntry) -> AsyncIterator[asyncio.Task[None]]:
    for entry in entries:
        await r1.session.create(f"{ROOT}/log/log-", entry.to_text().encode(), sequential=True)
    await LogPuller(r1.state, r1.session).pull()
    running = asyncio.create_task(Executor(r1.state, r1.session).run())
    try:
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def executing_as(monkeypatch: pytest.MonkeyPatch, act: Callable[[QueuedEntry], Any]) -> None:
    """Entries do what the test says instead of what their type says."""

    async def execute(_state: object, _session: object, queued: QueuedEntry) -> None:
        await act(queued)

    monkeypatch.setattr(executor, "execute", execute)


async def nothing(_queued: QueuedEntry) -> None:
    pass


def first(r1: IdleReplica) -> QueuedEntry:
    return next(iter(r1.state.queue))


@pytest.mark.parametrize("problem", [OSError("the disk is full"), SessionLost("gone")], ids=["disk", "session"])
async def test_a_failed_entry_stays_and_gives_its_slot_back(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    tries: list[int] = []

    async def fail_once(_queued: QueuedEntry) -> None:
        tries.append(r1.state.server.pools.fetches.running)
        if len(tries) == 1:
            raise problem
        await asyncio.Event().wait()

    executing_as(monkeypatch, fail_once)
    async with executing(r1, fetch_of("0_0_0_0")) as running:
        await eventually(lambda: tries == [1, 1])
        assert len(await r1.session.children(f"{ROOT}/replicas/r1/queue")) == 1
        (row,) = await system_rows(r1, "replication_queue")
        told = "" if isinstance(problem, SessionLost) else str(problem)
        assert (row["num_tries"], row["last_exception"], row["is_currently_executing"]) == (2, told, 1)
        assert not running.done()


async def test_a_failed_entry_is_put_off_and_tried_again_by_itself(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []

    async def fail(queued: QueuedEntry) -> None:
        ends.append(r1.state.now())
        raise OSError("no")

    executing_as(monkeypatch, fail)
    async with executing(r1, fetch_of("0_0_0_0")):
        await eventually(lambda: len(ends) == 7)
    pauses = [later - earlier for earlier, later in pairwise(ends)]
    # Times are rounded to milliseconds on the way.
    assert all(pause >= (2**tries - 1) / 1000 for tries, pause in enumerate(pauses, 1)), "each pause doubles"
    assert "Not executing" in first(r1).postpone_reason or first(r1).num_postponed == 0


async def test_a_full_pool_of_merges_never_holds_up_a_fetch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def note(queued: QueuedEntry) -> None:
        done.append(queued.new_part_name)

    executing_as(monkeypatch, note)
    async with idle_replica(cluster, "r1") as r1:
        r1.state.server.pools.merges_mutations.capacity = 0
        async with executing(r1, MERGE, fetch_of("0_7_7_0"), fetch_of("0_8_8_0")):
            await eventually(lambda: sorted(done) == ["0_7_7_0", "0_8_8_0"])
            assert [queued.entry for queued in r1.state.queue] == [MERGE]


async def test_a_done_entry_leaves_memory_before_its_znode(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        seen.append((len(r1.state.queue), len(await r1.session.children(f"{ROOT}/replicas/r1/queue"))))

    executing_as(monkeypatch, nothing)
    r1.before("delete", look)
    async with executing(r1, fetch_of("0_0_0_0", create_time=1234)):
        await eventually(lambda: seen == [(0, 1)])
        znodes = r1.state.znodes
        while (
            await r1.session.children(znodes.queue)
            or (await r1.session.get(znodes.max_processed_insert_time))[0] == b""
        ):
            await asyncio.sleep(0.005)
        assert (await r1.session.get(znodes.min_unprocessed_insert_time))[0] == b"0"
        assert (await r1.session.get(znodes.max_processed_insert_time))[0] == b"1234"


async def test_an_entry_whose_znode_is_gone_or_out_of_reach_is_done_all_the_same(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    executing_as(monkeypatch, nothing)
    queue = f"{ROOT}/replicas/r1/queue"
    r1.before("delete", lambda: r1.session.delete(f"{queue}/queue-0000000000"))
    async with executing(r1, fetch_of("0_0_0_0")) as running:
        await eventually(lambda: len(r1.state.queue) == 0)
        await asyncio.sleep(0.01)
        r1.before("delete", r1.session.close)
        r1.state.queue.insert("queue-0000000009", fetch_of("0_1_1_0"))
        r1.state.queue_changed.set()
        await eventually(lambda: len(r1.state.queue) == 0)
        await asyncio.sleep(0.01)
        assert not running.done()


async def test_no_more_fetches_run_than_the_pool_has_slots(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    most = [0]

    async def hold(_queued: QueuedEntry) -> None:
        most[0] = max(most[0], r1.state.server.pools.fetches.running)
        await gate.wait()

    executing_as(monkeypatch, hold)
    async with executing(r1, *(fetch_of(f"0_{n}_{n}_0") for n in range(4))):
        await eventually(lambda: r1.state.server.pools.fetches.running == 1)
        await asyncio.sleep(0.02)
        rows = await system_rows(r1, "replication_queue")
        assert [row["is_currently_executing"] for row in rows] == [0, 0, 0, 1], "the running one went to the tail"
        assert [row["position"] for row in rows] == [0, 1, 2, 3]
        assert "1 fetches already executing" in rows[0]["postpone_reason"]
        (table,) = await system_rows(r1, "replicas")
        assert (table["future_parts"], table["queue_size"], table["inserts_in_queue"]) == (1, 4, 4)
        assert int(table["queue_oldest_time"].timestamp()) == 1000
        gate.set()
        await eventually(lambda: len(r1.state.queue) == 0)
    assert most == [1]


async def test_an_entry_without_a_slot_waits_for_one(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    executing_as(monkeypatch, nothing)
    pool = r1.state.server.pools.merges_mutations
    pool.capacity = 0
    async with executing(r1, MERGE):
        await eventually(lambda: first(r1).num_tries == 1)
        await asyncio.sleep(0.01)
        assert not first(r1).currently_executing
        pool.capacity, pool.running = 1, 1
        pool.finish()
        await eventually(lambda: len(r1.state.queue) == 0)
    assert pool.running == 0


async def test_an_attempt_that_ends_before_its_first_step_gives_its_slot_back(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def the_session_is_lost_at_once(_executor: Executor) -> None:
        raise SessionLost("gone")

    monkeypatch.setattr(Executor, "_wait_for_change", the_session_is_lost_at_once)
    executing_as(monkeypatch, nothing)
    r1.state.queue.insert("queue-0000000000", fetch_of("0_0_0_0"))
    with pytest.raises(ExceptionGroup):
        await Executor(r1.state, r1.session).run()
    await asyncio.sleep(0)
    assert first(r1).num_tries == 1
    assert r1.state.server.pools.fetches.running == 0


# --- how an attempt may end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "problem", "shown"),
    [
        (fetch_of("0_0_0_0"), NoReplicaHasPart("nobody"), True),
        (fetch_of("0_0_0_0"), Aborted("stopped"), True),
        (fetch_of("0_0_0_0"), PartIsTemporarilyLocked("wait"), True),
        (fetch_of("0_0_0_0"), NotDone("later"), False),
        (DROP, Aborted("stopped"), True),
        (MERGE, NoReplicaHasPart("nobody"), True),
        (MERGE, ChecksumDoesntMatch("other"), True),
        (MERGE, Aborted("stopped"), False),
        (MERGE, PartIsTemporarilyLocked("wait"), False),
        (MERGE, NotDone("later"), False),
        (MERGE, ValueError("a bug"), True),
    ],
    ids=lambda value: f"{value.type}" if isinstance(value, LogEntry) else type(value).__name__,
)
async def test_which_ends_are_shown_and_make_an_entry_wait_longer(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch, entry: LogEntry, problem: Exception, shown: bool
) -> None:
    async def fail(_queued: QueuedEntry) -> None:
        raise problem

    executing_as(monkeypatch, fail)
    async with executing(r1, entry):
        queued = first(r1)
        await eventually(lambda: queued.num_tries >= 1 and not queued.currently_executing)
        assert (queued.last_exception != "", queued.last_exception_time > 0) == (shown, shown)
        assert (str(problem) in queued.last_exception) == shown


async def test_an_end_without_an_error_keeps_the_earlier_one(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Exception] = [OSError("the disk is full"), NotDone("later")]
    monkeypatch.setattr(executor, "drawn_factor", lambda *_arguments: 0.0)

    async def end(queued: QueuedEntry) -> None:
        if ends:
            raise ends.pop(0)
        await asyncio.Event().wait()

    executing_as(monkeypatch, end)
    async with executing(r1, fetch_of("0_0_0_0")):
        await eventually(lambda: first(r1).num_tries == 3)
        assert first(r1).last_exception == "the disk is full"


@pytest.mark.parametrize("problem", [NotDone("later"), OSError("no")], ids=["not done", "failed"])
async def test_what_ends_badly_is_never_tried_hot(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Not even where nothing makes it wait after an error."""
    settings = r1.state.structure.settings
    object.__setattr__(settings, "max_postpone_time_for_failed_replicated_fetches_ms", 0)
    tries: list[str] = []

    async def end(queued: QueuedEntry) -> None:
        tries.append(queued.new_part_name)
        if queued.new_part_name == "0_0_0_0":
            raise problem

    executing_as(monkeypatch, end)
    async with executing(r1, fetch_of("0_0_0_0"), *(fetch_of(f"0_{n}_{n}_0") for n in range(1, 30))):
        await eventually(lambda: len(r1.state.queue) == 1)
        assert tries.count("0_0_0_0") <= 5, "others that end wake the queue, but not this entry"
        assert first(r1).paused_until > r1.state.now() - 1
        first(r1).paused_until = 0
        before = len(tries)
        r1.state.queue_changed.set()
        await eventually(lambda: len(tries) == before + 1)


async def test_the_pause_grows_up_to_ten_minutes(r1: IdleReplica) -> None:
    queued = r1.state.queue.insert("queue-0000000000", fetch_of("0_0_0_0"))
    pausing = Executor(r1.state, r1.session)
    for tries, shortest in ((1, 0.11), (10, 0.259), (50, 11.7), (1000, 600.0), (10**6, 600.0)):
        queued.num_tries = tries
        before = r1.state.now()
        pausing._pause(queued)
        assert shortest <= queued.paused_until - before + 0.001 <= shortest + 1.2


async def test_an_entry_that_has_no_slot_where_it_must_go_waits_there_and_holds_none(
    r1: IdleReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = r1.state.server.pools
    done: list[str] = []

    async def fetch_instead(queued: QueuedEntry) -> None:
        assert queued.slot is not None
        queued.becomes_fetch = True
        queued.slot.move_to(pools.fetches)
        done.append(queued.new_part_name)

    executing_as(monkeypatch, fetch_instead)
    assert pools.fetches.try_start()
    async with executing(r1, MERGE):
        await eventually(lambda: first(r1).num_postponed > 0)
        assert first(r1).postpone_reason == (
            "Not executing fetch of part 0_0_1_1 because 1 fetches already executing, max 1."
        )
        assert (first(r1).num_tries, first(r1).last_exception, pools.merges_mutations.running) == (1, "", 0)
        pools.fetches.finish()
        await eventually(lambda: done == ["0_0_1_1"])
        await eventually(lambda: pools.fetches.running == 0)
    assert pools.merges_mutations.running == 0


async def test_what_was_not_done_is_tried_again_by_itself(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "drawn_factor", lambda *_arguments: 0.0)

    async def later(_queued: QueuedEntry) -> None:
        raise NotDone("later")

    executing_as(monkeypatch, later)
    async with executing(r1, fetch_of("0_0_0_0")):
        await eventually(lambda: first(r1).num_tries == 3)
        assert (first(r1).last_exception, first(r1).num_postponed) == ("", 0)


# --- a merge that is a fetch ---------------------------------------------------------------------------------

SOURCES = (PartName.parse("0_0_0_0"), PartName.parse("0_1_1_0"))
OF_TWO = replace(MERGE, source_parts=SOURCES)


async def have(r1: IdleReplica, *names: str) -> None:
    """Parts that count, and are registered."""
    store = r1.state.store
    for name in names:
        temporary = await store.write_temporary("tmp_insert_", piece_of(r1.state, 2).image)
        r1.state.activate(await store.publish(temporary, PartName.parse(name), 0))
        await r1.session.create(f"{ROOT}/replicas/r1/parts/{name}")


async def test_it_needs_no_slot_of_the_merges_to_begin(r1: IdleReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    executing_as(monkeypatch, nothing)
    r1.state.server.pools.merges_mutations.capacity = 0
    async with executing(r1, OF_TWO):
        await eventually(lambda: len(r1.state.queue) == 0)


async def test_it_needs_no_slot_of_the_fetches_when_its_result_is_here(r1: IdleReplica) -> None:
    await have(r1, "0_0_1_1")
    assert r1.state.server.pools.fetches.try_start()
    async with executing(r1, OF_TWO):
        await eventually(lambda: len(r1.state.queue) == 0)


async def test_after_a_failed_fetch_it_may_be_a_merge_again(r1: IdleReplica) -> None:
    async with executing(r1, OF_TWO):
        await eventually(lambda: "No active replica has part 0_0_1_1" in first(r1).last_exception)
        await have(r1, "0_0_0_0", "0_1_1_0")
        assert r1.state.server.pools.fetches.try_start()
        await eventually(lambda: len(r1.state.queue) == 0)
    assert [str(part.name) for part in r1.state.store.active_parts()] == ["0_0_1_1"]


class _NotedWorkers:
    def __init__(self) -> None:
        self.jobs: list[str] = []

    async def run(self, label: str, job: Callable[[], Any]) -> Any:
        self.jobs.append(label)
        return job()


async def test_a_merge_takes_no_worker_that_a_fetch_needs(cluster: Cluster) -> None:
    workers, merge_workers = _NotedWorkers(), _NotedWorkers()
    async with idle_replica(cluster, "r1", workers=workers, merge_workers=merge_workers) as r1:
        await have(r1, "0_0_0_0", "0_1_1_0")
        async with executing(r1, OF_TWO):
            await eventually(lambda: len(r1.state.queue) == 0)
    assert (workers.jobs, merge_workers.jobs) == ([], ["merge into 0_0_1_1"])


# --- pools ---------------------------------------------------------------------------------------------------


def test_each_type_has_its_pool() -> None:
    pools = Pools(ServerSettings())
    assert (pools.fetches.capacity, pools.merges_mutations.capacity, pools.common.capacity) == (16, 32, 8)
    expected = {
        EntryType.GET_PART: pools.fetches,
        EntryType.ATTACH_PART: pools.fetches,
        EntryType.MERGE_PARTS: pools.merges_mutations,
        EntryType.MUTATE_PART: pools.merges_mutations,
        EntryType.DROP_RANGE: pools.common,
        EntryType.ALTER_METADATA: pools.common,
    }
    assert {kind: pools.of(kind) for kind in expected} == expected


def test_a_pool_gives_no_more_slots_than_it_has() -> None:
    pool = Pool(2)
    assert [pool.try_start() for _ in range(3)] == [True, True, False]
    pool.finish()
    assert pool.try_start()
