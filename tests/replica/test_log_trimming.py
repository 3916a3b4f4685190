"""Which log entries go, who is lost by that, and that nobody loses an entry that it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.api import BadVersion, Check, Create, Delete
from replica.background.log_trimming import LogReader, Trimming, plan_trimming, trim_log
from replica.errors import AllReplicasLost, BadArguments, ReplicaStatusChanged
from replica.settings import MergeTreeSettings
from tests.replica.cluster import ROOT, Cluster
from tests.replica.idle import IdleReplica, idle_replica


def log_names(first: int, count: int) -> list[str]:
    return [f"log-{number:010d}" for number in range(first, first + count)]


def reader(name: str, pointer: int, *, lost: bool | None = False, active: bool = True, host: int = 1) -> LogReader:
    return LogReader(name, host, pointer, lost, active)


def plan(first: int, count: int, *readers: LogReader, most: int = 20, least: int = 5) -> Trimming | None:
    settings = MergeTreeSettings(max_replicated_logs_to_keep=most, min_replicated_logs_to_keep=least)
    return plan_trimming(log_names(first, count), readers, settings)


def cut(planned: Trimming | None) -> int:
    """How many entries go."""
    return 0 if planned is None else len(planned.victims)


AHEAD = reader("ahead", 130)


def test_entries_that_everybody_has_copied_go_but_for_the_last_few() -> None:
    planned = plan(100, 30, reader("r1", 130), reader("r2", 130))
    assert planned == Trimming(log_names(100, 25), {}, {})
    assert cut(plan(100, 30, reader("r1", 130), reader("r2", 110))) == 10
    assert plan(100, 5, reader("r1", 105)) is None
    assert plan(100, 0, reader("r1", 100)) is None


# The log is 100 to 129, and the last 20 are kept for those who are away: the mark is 110.
TABLE = [
    ("active", reader("r", 103), 3, {}, {}),
    ("active, and never pulled", reader("r", 0), 0, {}, {}),
    ("recovering: what it is about to copy is needed", reader("r", 103, lost=True), 3, {}, {}),
    ("away, of an old release", reader("r", 103, lost=None, active=False), 3, {}, {}),
    ("away, but not too far behind", reader("r", 110, active=False), 10, {}, {}),
    ("away, and too far behind", reader("r", 109, active=False, host=7), 25, {"r": 7}, {}),
    ("away, and lost already", reader("r", 103, active=False, lost=True, host=7), 25, {}, {"r": 7}),
]


@pytest.mark.parametrize(
    ("other", "gone", "to_mark", "marked"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_what_one_replica_needs(other: LogReader, gone: int, to_mark: dict[str, int], marked: dict[str, int]) -> None:
    planned = plan(100, 30, AHEAD, other)
    assert cut(planned) == gone
    if planned is not None:
        assert (planned.to_mark, planned.marked) == (to_mark, marked)


def test_a_log_that_is_shorter_than_what_is_kept_waits_for_those_that_are_in_it() -> None:
    away = reader("r", 101, active=False)
    assert cut(plan(100, 30, AHEAD, away, most=30)) == 1
    assert cut(plan(100, 30, AHEAD, reader("r", 99, active=False), most=50)) == 25


def test_while_somebody_recovers_it_may_be_cloning_from_one_that_falls_behind() -> None:
    behind, recovering = reader("r", 104, active=False), reader("n", 120, lost=True)
    planned = plan(100, 30, AHEAD, behind, recovering)
    assert planned == Trimming(log_names(100, 4), {"r": 1}, {})


def test_nobody_is_marked_when_nothing_goes() -> None:
    assert plan(100, 30, AHEAD, reader("r", 103, active=False), reader("x", 0)) is None


def test_the_last_replica_is_never_lost() -> None:
    with pytest.raises(AllReplicasLost):
        plan(100, 30, reader("r", 103, active=False))
    with pytest.raises(AllReplicasLost):
        plan(100, 30, reader("r", 103, active=False), reader("x", 100, active=False, lost=True))
    with pytest.raises(AllReplicasLost):  # a recovering one is no replica to clone from
        plan(100, 30, reader("r", 103, active=False), reader("x", 102, lost=True))


readers = st.builds(
    LogReader,
    name=st.uuids().map(str),
    host_version=st.integers(0, 5),
    log_pointer=st.integers(0, 40),
    is_lost=st.sampled_from([None, False, True]),
    is_active=st.booleans(),
)


@given(
    st.lists(readers, min_size=1, max_size=5), st.integers(0, 20), st.integers(0, 20), st.integers(1, 15),
    st.integers(0, 12),
)  # fmt: skip
def test_nobody_misses_an_entry_but_the_lost(
    everybody: list[LogReader], first: int, count: int, most: int, least: int
) -> None:
    try:
        planned = plan(first, count, *everybody, most=most, least=least)
    except AllReplicasLost:
        assert not any(each.is_active and not each.is_lost for each in everybody)
        return
    assume(planned is not None)
    assert planned is not None
    assert planned.victims == log_names(first, len(planned.victims))
    assert 0 < len(planned.victims) <= count - least
    last = int(planned.victims[-1][4:])
    for each in everybody:
        is_safe = each.log_pointer > last
        assert is_safe or each.name in planned.to_mark or each.name in planned.marked
        if each.name in planned.to_mark:
            assert not each.is_active
            assert each.is_lost is False
            assert each.log_pointer < first + max(0, count - most)
        if each.name in planned.marked:
            assert (each.is_active, each.is_lost) == (False, True)
    assert any(not each.is_lost and each.name not in planned.to_mark for each in everybody)


# --- in the coordination service -----------------------------------------------------------------------------


@dataclass
class Trimmed:
    """r1 cleans up; the other replicas exist as znodes only."""

    r1: IdleReplica
    sent: list[list[object]] = field(default_factory=list)

    async def log_up_to(self, count: int) -> None:
        await self.r1.session.multi([Create(f"{ROOT}/log/log-", b"", sequential=True)] * count)

    async def other(self, name: str, pointer: bytes, *, lost: bytes | None = b"0", active: bool = True) -> None:
        root = f"{ROOT}/replicas/{name}"
        values = {
            "": b"",
            "/host": b"",
            "/log_pointer": pointer,
            "/is_lost": lost,
            "/is_active": b"" if active else None,
        }
        for path, value in values.items():
            if value is not None:
                await self.r1.session.create(root + path, value)

    async def trim(self) -> list[int]:
        """The numbers of the entries that are left."""
        before = len(await self.left())
        removed = await trim_log(self.r1.state, self.r1.session)
        left = await self.left()
        assert removed == before - len(left)
        return left

    async def left(self) -> list[int]:
        return [int(name[4:]) for name in await self.r1.session.children(f"{ROOT}/log")]

    async def value(self, path: str) -> bytes:
        return (await self.r1.session.get(f"{ROOT}/{path}"))[0]


class Lowest:
    """The factor is drawn as the first of its range."""

    def choose(self, label, options):  # type: ignore[no-untyped-def]
        return options[0]


@pytest.fixture
async def trimmed(cluster: Cluster) -> AsyncIterator[Trimmed]:
    settings = {"min_replicated_logs_to_keep": "5", "max_replicated_logs_to_keep": "20"}
    async with idle_replica(cluster, "r1", settings=settings, chance=Lowest()) as r1:
        await r1.session.create(f"{ROOT}/replicas/r1/is_active")
        await r1.session.set(f"{ROOT}/replicas/r1/log_pointer", b"1000")
        await r1.session.set(f"{ROOT}/replicas/r1/is_lost", b"0")
        yield Trimmed(r1)


async def test_a_log_that_all_have_copied_is_cut(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    await trimmed.other("r2", b"28")
    assert await trimmed.trim() == list(range(25, 30))
    assert await trimmed.trim() == list(range(25, 30))


async def test_a_replica_that_never_pulled_needs_all(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    await trimmed.other("r2", b"")
    assert await trimmed.trim() == list(range(30))


async def test_more_entries_than_are_kept_must_have_come_before_any_goes(cluster: Cluster) -> None:
    settings = {"min_replicated_logs_to_keep": "40"}
    async with idle_replica(cluster, "r1", settings=settings, chance=Lowest()) as r1:
        trimmed = Trimmed(r1)
        await r1.session.create(f"{ROOT}/replicas/r1/is_active")
        await r1.session.set(f"{ROOT}/replicas/r1/log_pointer", b"1000")
        await trimmed.log_up_to(41)
        assert len(await trimmed.trim()) == 41
        await trimmed.log_up_to(1)  # 40 × 1.05
        assert len(await trimmed.trim()) == 40


async def test_who_missed_too_much_is_marked_lost_before_the_log_is_cut(trimmed: Trimmed) -> None:
    """The multis are those of the real thing: clickhouse-18.16/12-lost-replica."""
    await trimmed.log_up_to(30)
    await trimmed.other("r3", b"3", active=False)
    sent = trimmed.r1.recorded_multis()
    assert await trimmed.trim() == list(range(25, 30))
    assert await trimmed.value("replicas/r3/is_lost") == b"1"
    mark, removal = sent
    assert mark[0] == Check(f"{ROOT}/replicas/r3/host", 0)
    assert removal[0] == Delete(f"{ROOT}/log/log-0000000000")
    assert removal[25:] == [Check(f"{ROOT}/replicas/r3/host", 0), Check(f"{ROOT}/replicas", 0)]


async def test_who_comes_back_before_it_is_marked_is_not_lost(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    await trimmed.other("r3", b"3", active=False)
    trimmed.r1.before("multi", lambda: trimmed.r1.session.set(f"{ROOT}/replicas/r3/host", b"here"))
    with pytest.raises(ReplicaStatusChanged):
        await trimmed.trim()
    assert await trimmed.value("replicas/r3/is_lost") == b"0"
    assert await trimmed.left() == list(range(30))


@pytest.mark.parametrize("lost", [b"0", b"1"])
async def test_who_comes_back_after_it_was_marked_keeps_the_log(trimmed: Trimmed, lost: bytes) -> None:
    """It may clone one that is lost too by now, and take over its pointer."""
    await trimmed.log_up_to(30)
    await trimmed.other("r3", b"3", active=False, lost=lost)
    back = lambda: trimmed.r1.session.set(f"{ROOT}/replicas/r3/host", b"here")  # noqa: E731
    (trimmed.r1.after if lost == b"0" else trimmed.r1.before)("multi", back)
    with pytest.raises(BadVersion):
        await trimmed.trim()
    assert await trimmed.left() == list(range(30))


async def test_a_replica_that_joins_meanwhile_keeps_the_log(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    trimmed.r1.before("multi", lambda: trimmed.r1.session.set(f"{ROOT}/replicas", b"another"))
    with pytest.raises(BadVersion):
        await trimmed.trim()
    assert await trimmed.left() == list(range(30))


async def test_the_pointer_of_a_recovering_replica_is_read_again_at_the_end(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    await trimmed.other("r2", b"28", lost=b"1")
    await trimmed.other("r3", b"28")
    real, calls = trimmed.r1.session.get_many, []

    async def get_many(paths):  # type: ignore[no-untyped-def]
        calls.append(paths)
        if len(calls) == 3:  # r1 and r2 are read
            await trimmed.r1.session.set(f"{ROOT}/replicas/r2/log_pointer", b"4")
        return await real(paths)

    trimmed.r1.session.get_many = get_many  # type: ignore[method-assign]
    assert await trimmed.trim() == list(range(4, 30))


async def test_the_first_batch_of_a_long_log_has_401_entries(trimmed: Trimmed) -> None:
    for _ in range(5):
        await trimmed.log_up_to(100)
    sent = trimmed.r1.recorded_multis()
    assert await trimmed.trim() == list(range(495, 500))
    assert [sum(isinstance(each, Delete) for each in multi) for multi in sent] == [401, 94]


async def test_another_cleaner_at_work_ends_this_one(trimmed: Trimmed) -> None:
    for _ in range(5):
        await trimmed.log_up_to(100)
    trimmed.r1.before("multi", lambda: trimmed.r1.session.delete(f"{ROOT}/log/log-0000000000"))
    assert await trim_log(trimmed.r1.state, trimmed.r1.session) == 0
    assert len(await trimmed.left()) == 499


async def test_a_replica_that_is_being_dropped_holds_everything_up(trimmed: Trimmed) -> None:
    await trimmed.log_up_to(30)
    await trimmed.r1.session.create(f"{ROOT}/replicas/r2")
    with pytest.raises(Exception, match="replicas/r2"):
        await trimmed.trim()


def test_settings_of_the_log() -> None:
    settings = MergeTreeSettings.from_text({})
    assert (settings.max_replicated_logs_to_keep, settings.min_replicated_logs_to_keep) == (1000, 10)
    with pytest.raises(BadArguments, match="max_replicated_logs_to_keep"):
        MergeTreeSettings.from_text({"max_replicated_logs_to_keep": "0"})
