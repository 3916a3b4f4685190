"""What operators of ReplicatedMergeTree suffer from when replicas, disks and sessions are lost, and how it ends here.

The numbers are those of issues of ClickHouse.
"""

from __future__ import annotations

import asyncio

import pytest

from clickhouse_sim.simulation.history import TABLE
from coordinator.api import Create
from replica.background.attach import FORCE_FILE
from replica.background.log_trimming import trim_log
from replica.commands import Action, InsertStatus, OptimizeTable, SwitchAction
from replica.log_entry import EntryType
from replica.part_name import PartName
from tests.clickhouse_sim.small_world import FOLDER, SESSION_SECONDS, SmallWorld, keys_of, play
from tests.replica.cluster import ROOT, Cluster
from tests.replica.idle import fetch_of, idle_replica

SHORT_LOG = {
    "min_replicated_logs_to_keep": "5",
    "max_replicated_logs_to_keep": "10",
    "cleanup_delay_period": "5",
    "max_cleanup_delay_period": "10",
}


def events_of(world: SmallWorld, name: str, error: int) -> list[str]:
    """The parts of which the server's part log tells that error."""
    return [event.part_name for event in world.state(name).server.part_log if event.error == error]


def copy_part(world: SmallWorld, name: str, source: str, target: str) -> None:
    image = world.world.images[name]
    image.make_folder(f"{FOLDER}/{target}")
    for file in image.names(f"{FOLDER}/{source}"):
        image.write(f"{FOLDER}/{target}/{file}", image.read(f"{FOLDER}/{source}/{file}"))


# --- the queue does not wait for what is lost (#10368, #25820) -------------------------------------------------


def test_a_merge_whose_source_was_lost_everywhere_ends_and_the_loss_is_counted() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2")
        await world.insert("r1", 0)
        await world.settled("r1", "r2")
        await world.stop_action("r2", Action.FETCHES)
        await world.insert("r1", 1)
        await world.insert("r2", 2)
        await world.settled("r1")
        await world.execute("r1", OptimizeTable("default", "t", final=True))
        assert await world.keys("r1") == keys_of(0, 1, 2)
        world.kill("r1")
        world.destruction.lose_disk("r1")
        await world.start("r1")
        await world.execute("r2", SwitchAction(Action.FETCHES, False, "default", "t"))
        await world.settled("r1", "r2")
        for name in ("r1", "r2"):
            assert await world.keys(name) == keys_of(0, 2)
            assert (await world.row(name))["lost_part_count"] == 2, "one part in each partition"
            assert (await world.row(name))["parts_to_check"] == 0
        lost = events_of(world, "r1", 234) + events_of(world, "r2", 234)
        assert [each for each in lost if each.endswith("_1_1_0")], "the part log tells which"
        # Whoever still has the rows may insert them again; the rows that are there stay known.
        assert (await world.insert("r2", 0)).status is InsertStatus.DUPLICATE
        assert (await world.insert("r2", 1)).status is InsertStatus.STORED
        await world.settled("r1", "r2")
        assert await world.keys("r1") == keys_of(0, 1, 2)

    play(told)


def test_a_part_that_an_inactive_replica_may_have_is_not_given_up() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2", "r3")
        await world.create("r1", "r2", "r3")
        for name in ("r2", "r3"):
            await world.stop_action(name, Action.FETCHES)
        await world.insert("r1", 0)
        world.kill("r1")
        for name in ("r2", "r3"):
            await world.execute(name, SwitchAction(Action.FETCHES, False, "default", "t"))
        await asyncio.sleep(3600)
        assert await world.lost_parts() == 0
        assert (await world.row("r2"))["queue_size"] == 2
        await world.start("r1")
        await world.settled("r1", "r2", "r3")
        assert await world.keys("r3") == keys_of(0)

    play(told)


# --- lost replicas and clones -----------------------------------------------------------------------------------


def test_a_replica_that_was_away_longer_than_the_log_clones_and_no_row_is_lost() -> None:
    """#34704"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2", **SHORT_LOG)
        await world.insert("r2", 0)
        await world.settled("r1", "r2")
        world.kill("r2")
        await asyncio.sleep(2 * SESSION_SECONDS)
        await world.insert("r1", *range(1, 21))
        await asyncio.sleep(120)
        session = await world.session()
        assert (await session.get(TABLE.replica("r2").is_lost))[0] == b"1"
        assert len(await session.children(TABLE.log)) <= 10
        await world.start("r2")
        await world.settled("r1", "r2")
        assert await world.keys("r2") == await world.keys("r1") == keys_of(*range(21))
        assert world.parts("r2") == world.parts("r1")

    play(told)


def test_when_all_replicas_are_lost_they_say_so_and_there_is_a_way_out() -> None:
    """#4112"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2")
        await world.insert("r1", 0)
        await world.settled("r1", "r2")
        world.kill("r1", "r2")
        session = await world.session()
        for name in ("r1", "r2"):
            await session.set(TABLE.replica(name).is_lost, b"1")
        for entry in await session.children(TABLE.log):
            await session.delete(TABLE.log_entry(entry))
        await world.start("r1", "r2")
        await asyncio.sleep(120)
        for name in ("r1", "r2"):
            reason = (await world.row(name))["zookeeper_exception"]
            assert "All replicas" in reason
            assert f"set its znode is_lost to 0, as {TABLE.replica(name).is_lost}" in reason
        await session.set(TABLE.replica("r1").is_lost, b"0")
        await world.insert("r2", 1)
        await world.settled("r1", "r2")
        assert await world.keys("r1") == await world.keys("r2") == keys_of(0, 1)

    play(told)


def test_the_most_advanced_replica_is_cloned_and_unknown_local_parts_are_detached() -> None:
    """#4399, #15701, #9583"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2", "r3")
        await world.create("r1", "r2", "r3")
        await world.insert("r1", 0)
        await world.settled("r1", "r2", "r3")
        world.kill("r2", "r3")
        await asyncio.sleep(2 * SESSION_SECONDS)
        await world.insert("r1", *range(1, 6))
        await world.settled("r1")
        copy_part(world, "r3", "0_0_0_0", "0_77_77_0")
        session = await world.session()
        header, _ = await session.get(TABLE.replica("r3").part("0_0_0_0"))
        await session.create(TABLE.replica("r3").part("0_77_77_0"), header)
        await session.set(TABLE.replica("r3").is_lost, b"1")
        for entry in (await session.children(TABLE.log))[:-1]:  # who clones r2 does not see them any more
            await session.delete(TABLE.log_entry(entry))
        await world.start("r3")
        await world.settled("r1", "r3")
        assert await world.keys("r3") == keys_of(*range(6))
        assert "clone_0_77_77_0" in world.detached("r3")

    play(told)


@pytest.mark.parametrize(("detach", "detached"), [("1", ["clone_0_7_7_0"]), ("0", [])])
def test_a_part_that_a_clone_put_away_does_not_keep_anybody_waiting(detach: str, detached: list[str]) -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2", detach_old_local_parts_when_cloning_replica=detach)
        await world.insert("r1", 0)
        await world.settled("r1", "r2")
        session = await world.session()
        world.kill("r2")
        copy_part(world, "r2", "0_0_0_0", "0_7_7_0")
        header, _ = await session.get(TABLE.replica("r2").part("0_0_0_0"))
        await session.create(TABLE.replica("r2").part("0_7_7_0"), header)
        await session.set(TABLE.replica("r2").is_lost, b"1")
        # The source does not know of the part when it is cloned; both read of it later.
        await world.stop_action("r1", Action.PULLING_REPLICATION_LOG)
        entry = fetch_of("0_7_7_0").to_text().encode()
        await session.create(f"{TABLE.log}/log-", entry, sequential=True)
        await world.start("r2")
        await world.writable("r2")
        await world.execute("r1", SwitchAction(Action.PULLING_REPLICATION_LOG, False, "default", "t"))
        await world.settled("r1", "r2", seconds=120)
        assert await world.keys("r1") == await world.keys("r2") == keys_of(0)
        assert world.detached("r2") == detached
        assert await world.lost_parts() == 1

    play(told)


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_outdated_entry_comes_back_with_a_clone(seed: int) -> None:
    """#24777"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2", "r3")
        await world.create("r1", "r2")
        await world.insert("r1", *range(4))
        await world.settled("r1", "r2")
        async with asyncio.TaskGroup() as group:
            group.create_task(world.execute("r1", OptimizeTable("default", "t", final=True)))
            group.create_task(world.create("r3"))
        queue = world.state("r3").queue
        queue.check_invariant()
        for queued in queue:
            made = queued.entry.new_part
            assert made is not None
            covering = queue.current_parts.containing(made)
            assert covering in (None, made) or queued.entry.type is EntryType.GET_PART
        await world.settled("r1", "r2", "r3")
        assert world.parts("r3") == world.parts("r1")
        assert await world.keys("r3") == keys_of(*range(4))

    play(told, seed)


async def test_one_cleanup_cuts_a_log_of_any_length(cluster: Cluster) -> None:
    """#56505"""
    async with idle_replica(cluster, "r1", settings={"max_replicated_logs_to_keep": "10"}) as r1:
        entry = fetch_of("0_0_0_0").to_text().encode()
        for _ in range(3):
            await r1.session.multi([Create(f"{ROOT}/log/log-", entry, sequential=True)] * 500)
        await r1.session.set(f"{ROOT}/replicas/r1/log_pointer", b"1500")
        assert await trim_log(r1.state, r1.session) == 1490
        assert len(await r1.session.children(f"{ROOT}/log")) == 10


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["request", "reply"])
def test_a_session_that_expires_under_a_commit_leaves_the_replica_writable_soon(label: str) -> None:
    """#4901, #36343, #43106, #72705; every other moment: tests/clickhouse_sim/test_session_death.py"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1")
        network = world.world.network
        real = network.delay

        def delay(one: str, other: str, what: str) -> float | None:
            if f" {label} " in what and "Multi" in what:
                network.delay = real  # type: ignore[method-assign]
                world.world.service.expire(int(what.split()[1].removeprefix("s")))
            return real(one, other, what)

        network.delay = delay  # type: ignore[method-assign]
        before = asyncio.get_running_loop().time()
        assert (await world.insert("r1", 0)).status in (InsertStatus.STORED, InsertStatus.DUPLICATE)
        assert asyncio.get_running_loop().time() - before < 20
        assert await world.keys("r1") == keys_of(0)
        assert await (await world.session()).exists(TABLE.replica("r1").is_active) is not None

    play(told)


def test_a_replica_that_was_killed_and_starts_at_once_waits_and_says_how_long() -> None:
    """#33714, #14208, #31478"""

    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1")
        await world.insert("r1", 0)
        world.kill("r1")
        await asyncio.sleep(1)
        await world.start("r1")
        await asyncio.sleep(3)
        row = await world.row("r1")
        assert row["is_readonly"] == 1
        assert "appears to be already active" in row["zookeeper_exception"]
        assert f"ends within {SESSION_SECONDS} s" in row["zookeeper_exception"]
        assert await world.keys("r1") == keys_of(0), "it can be read meanwhile"
        await world.writable("r1", seconds=SESSION_SECONDS)
        assert (await world.row("r1"))["zookeeper_exception"] == ""

    play(told)


def test_a_second_server_under_a_living_name_is_refused_and_does_no_harm() -> None:
    async def told(world: SmallWorld) -> None:
        world.names["r3"] = "r1"
        await world.start("r1")
        await world.create("r1")
        await world.insert("r1", 0)
        images = world.world.images
        for path in images["r1"].entries_below("metadata"):  # the catalog of r1, none of its parts, another server
            if path.endswith(".json"):
                images["r3"].make_folder(path.rpartition("/")[0])
                images["r3"].write(path, images["r1"].read(path))
        await world.start("r3")
        await asyncio.sleep(5)
        assert f"ends within {SESSION_SECONDS} s" in world.state("r3").readonly_reason
        await asyncio.sleep(4 * SESSION_SECONDS)
        reason = world.state("r3").readonly_reason
        assert "appears to be already active" in reason
        assert "another server runs under the same name" in reason
        assert await world.registered("r1") == ["0_0_0_0", "1_0_0_0"], "the living one keeps what it has registered"
        await world.insert("r1", 1)
        assert await world.keys("r1") == keys_of(0, 1)

    play(told)


# --- the disk and the znodes do not fit (#26716, KB "removing lost parts") ------------------------------------------


def test_a_part_that_went_while_the_server_was_down_is_fetched() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2")
        await world.insert("r1", 0, 1)
        await world.settled("r1", "r2")
        world.kill("r1")
        world.world.images["r1"].remove(f"{FOLDER}/0_1_1_0")
        await world.start("r1")
        await world.settled("r1", "r2")
        assert await world.keys("r1") == keys_of(0, 1)
        assert await world.lost_parts() == 0

    play(told)


def test_a_part_that_went_and_is_nowhere_else_becomes_an_empty_one() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1")
        await world.insert("r1", 0, 1)
        world.kill("r1")
        world.world.images["r1"].remove(f"{FOLDER}/0_1_1_0")
        await world.start("r1")
        await world.settled("r1")
        assert await world.keys("r1") == [key for key in keys_of(0, 1) if key not in (4, 6)]
        assert await world.lost_parts() == 1
        assert "0_1_1_0" in world.parts("r1")
        assert events_of(world, "r1", 234)[-1] == "0_1_1_0"

    play(told)


@pytest.mark.parametrize("way", ["znode", "file"])
def test_too_many_unexpected_parts_stop_the_start_until_an_operator_forces_it(way: str) -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1")
        await world.insert("r1", 0, 1, 2)
        world.kill("r1")
        session = await world.session()
        for part in ("0_0_0_0", "0_1_1_0", "1_0_0_0", "1_1_1_0"):
            await session.delete(TABLE.replica("r1").part(part))
        await world.start("r1")
        await asyncio.sleep(60)
        reason = (await world.row("r1"))["zookeeper_exception"]
        assert "8 rows of 12 total rows in filesystem are suspicious" in reason
        assert FORCE_FILE in reason
        assert world.detached("r1") == [], "nothing is touched before"
        if way == "znode":
            await session.create(TABLE.replica("r1").force_restore_data)
        else:
            world.kill("r1")
            world.world.images["r1"].make_folder("flags")
            world.world.images["r1"].write(FORCE_FILE, b"")
            await world.start("r1")
        await world.settled("r1")
        assert world.detached("r1") == [f"ignored_{part}" for part in ("0_0_0_0", "0_1_1_0", "1_0_0_0", "1_1_1_0")]
        assert await world.keys("r1") == keys_of(2)
        assert await session.exists(TABLE.replica("r1").force_restore_data) is None
        assert not world.world.images["r1"].exists(FORCE_FILE)

    play(told)


def test_a_merge_that_was_killed_before_its_commit_gives_its_sources_back() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1", merge_selecting_sleep_ms="10000000", max_merge_selecting_sleep_ms="10000000")
        await world.insert("r1", 0, 1)
        world.kill("r1")
        copy_part(world, "r1", "0_0_0_0", "0_0_1_1")  # its sources are replaced by it when the parts are loaded
        await world.start("r1")
        await world.settled("r1")
        assert await world.keys("r1") == keys_of(0, 1)
        assert world.detached("r1") == ["ignored_0_0_1_1"]
        assert PartName.parse("0_1_1_0") in [part.name for part in world.state("r1").store.active_parts()]

    play(told)


# --- a part rots --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["data.arrow", "checksums.txt", "count.txt", "columns.txt"])
def test_a_rotten_part_is_found_when_it_is_read_and_fetched_again(file: str) -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2")
        await world.insert("r1", 0)
        await world.settled("r1", "r2")
        world.rot("r1", "0_0_0_0", file)
        with pytest.raises(Exception, match=r"checksums|columns|count|the part|data"):
            await world.keys("r1")
        await asyncio.sleep(10)
        await world.settled("r1", "r2")
        assert await world.keys("r1") == keys_of(0)
        assert world.detached("r1") == ["broken_0_0_0_0"]
        assert await world.lost_parts() == 0

    play(told)


def test_a_rotten_part_is_not_sent_and_its_owner_learns_of_it() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1", "r2")
        await world.create("r1", "r2")
        await world.stop_action("r2", Action.FETCHES)
        await world.insert("r1", 0)
        world.rot("r1", "0_0_0_0")
        await world.execute("r2", SwitchAction(Action.FETCHES, False, "default", "t"))
        await world.settled("r1", "r2")
        assert await world.lost_parts() == 1
        for name in ("r1", "r2"):
            assert await world.keys(name) == [1, 3]
        assert world.detached("r1") == ["broken_0_0_0_0"]

    play(told)
