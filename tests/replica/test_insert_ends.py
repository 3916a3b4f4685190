"""Every end of one part of an insert: what the client is told, and what is left on the disk and in the znodes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replica.background.uncertain_parts import settle_uncertain_parts
from replica.commands import InsertOptions, InsertStatus, PartOutcome
from replica.insert.commit import PartCommit
from replica.insert.sink import insert_block
from replica.log_entry import LogEntry
from replica.part_name import PartName
from replica.storage.part_store import PartState
from tests.replica.cluster import IMPATIENT, PATIENT, ROOT, Cluster, eventually, rows
from tests.replica.idle import IdleReplica, activate, idle_replica, piece_of


@dataclass
class Inserting:
    """A writable replica whose background does nothing, and its folder."""

    replica: IdleReplica
    folder: Path

    async def insert(self, *keys: int) -> PartOutcome:
        state = self.replica.state
        piece = piece_of(state, *keys)
        return await PartCommit(state, piece, await state.store.write_temporary("tmp_insert_", piece.image)).run()

    def on_disk(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    async def locks(self) -> list[str]:
        return await self.replica.session.children(f"{ROOT}/block_numbers/0")


@pytest.fixture
async def inserting(cluster: Cluster) -> AsyncIterator[Inserting]:
    cluster.settings = IMPATIENT
    async with idle_replica(cluster, "r1") as r1:
        activate(r1.state, r1.session)
        yield Inserting(r1, cluster.folder / "r1" / "data" / "default" / "t")


async def test_stored(inserting: Inserting) -> None:
    outcome = await inserting.insert(2)
    assert (outcome.status, outcome.part_name, outcome.error) == (InsertStatus.STORED, "0_0_0_0", "")
    assert inserting.on_disk() == ["0_0_0_0"]
    assert await inserting.locks() == []


async def test_the_entry_tells_when_it_was_made(inserting: Inserting) -> None:
    inserting.replica.state.environment = replace(inserting.replica.environment, clock=_Standing())
    await inserting.insert(2)
    text, _ = await inserting.replica.session.get(f"{ROOT}/log/log-0000000000")
    assert LogEntry.parse(text.decode()).create_time == 1_700_000_000


class _Standing:
    def now(self) -> float:
        return 1_700_000_000.9


async def test_duplicate(inserting: Inserting) -> None:
    await inserting.insert(2)
    outcome = await inserting.insert(2)
    assert (outcome.status, outcome.part_name) == (InsertStatus.DUPLICATE, "0_0_0_0")
    assert inserting.on_disk() == ["0_0_0_0"]
    assert await inserting.locks() == []


async def test_duplicate_of_a_part_whose_id_is_gone_meanwhile(inserting: Inserting) -> None:
    first = await inserting.insert(2)
    session, path = inserting.replica.session, f"{ROOT}/deduplication_hashes/{first.block_id}"
    inserting.replica.before("get_many", lambda: session.delete(path))
    outcome = await inserting.insert(2)
    assert (outcome.status, outcome.part_name) == (InsertStatus.DUPLICATE, "")


def while_committing(inserting: Inserting, effect: Callable[[], Any]) -> None:
    """Let something happen when the number is taken and the commit not yet sent."""
    inserting.replica.before("multi_checked", effect)


async def test_duplicate_by_an_id_that_appeared_after_the_number_was_taken(inserting: Inserting) -> None:
    block_id = piece_of(inserting.replica.state, 2).block_ids[0]
    path = f"{ROOT}/deduplication_hashes/{block_id}"
    while_committing(inserting, lambda: inserting.replica.session.create(path, b"0_7_7_0"))
    outcome = await inserting.insert(2)
    assert (outcome.status, outcome.part_name) == (InsertStatus.DUPLICATE, "0_7_7_0")
    assert inserting.on_disk() == []
    assert inserting.replica.state.store.parts() == []
    assert await inserting.locks() == []


async def test_cancelled_by_a_drop_that_took_the_lock_away(inserting: Inserting) -> None:
    async def drop() -> None:
        (lock,) = await inserting.locks()
        await inserting.replica.session.delete(f"{ROOT}/block_numbers/0/{lock}")

    while_committing(inserting, drop)
    outcome = await inserting.insert(2)
    assert outcome.status is InsertStatus.NOT_STORED
    assert "cancelled by a DROP" in outcome.error
    assert inserting.on_disk() == []
    assert inserting.replica.state.store.parts() == []


async def test_refused_for_a_reason_that_should_not_be(inserting: Inserting) -> None:
    session = inserting.replica.session
    while_committing(inserting, lambda: session.create(f"{ROOT}/replicas/r1/parts/0_0_0_0"))
    outcome = await inserting.insert(2)
    assert outcome.status is InsertStatus.NOT_STORED
    assert "block number 0 was refused" in outcome.error
    assert inserting.on_disk() == []
    assert inserting.replica.state.store.parts() == []
    assert await inserting.locks() == [], "the number is given back"


async def test_its_name_is_taken_on_the_disk(inserting: Inserting) -> None:
    store = inserting.replica.state.store
    image = piece_of(inserting.replica.state, 4).image
    await store.publish(await store.write_temporary("tmp_insert_", image), PartName.parse("0_0_0_0"), 0)
    outcome = await inserting.insert(2)
    assert outcome.status is InsertStatus.NOT_STORED
    assert "exists already" in outcome.error
    assert inserting.on_disk() == ["0_0_0_0"]
    assert await inserting.locks() == []


async def test_the_disk_refuses_the_final_name(inserting: Inserting) -> None:
    (inserting.folder / "0_0_0_0").mkdir(parents=True)
    outcome = await inserting.insert(2)
    assert outcome.status is InsertStatus.NOT_STORED
    assert inserting.on_disk() == ["0_0_0_0"]
    assert inserting.replica.state.store.parts() == []
    assert await inserting.locks() == []


async def test_unknown_and_then_found_uncommitted_it_is_detached(inserting: Inserting, cluster: Cluster) -> None:
    state = inserting.replica.state

    async def cut_off() -> None:
        cluster.delivery.loses = lambda label: True
        inserting.replica.coordinator.sever()

    while_committing(inserting, cut_off)
    outcome = await inserting.insert(2)
    cluster.delivery.loses = lambda label: False
    assert outcome.status is InsertStatus.UNKNOWN
    assert inserting.on_disk() == ["0_0_0_0"], "perhaps the only copy"
    settling = asyncio.create_task(settle_uncertain_parts(state, await inserting.replica.later_session()))
    await eventually(lambda: inserting.on_disk() == ["detached"])
    assert [path.name for path in (inserting.folder / "detached").iterdir()] == ["ignored_0_0_0_0"]
    assert list(state.uncertain_parts) == []
    settling.cancel()


async def test_unknown_and_then_found_committed_it_counts(inserting: Inserting) -> None:
    state, session = inserting.replica.state, inserting.replica.session
    temporary = await state.store.write_temporary("tmp_insert_", piece_of(state, 2).image)
    part = await state.store.publish(temporary, PartName.parse("0_0_0_0"), 0)
    state.uncertain_parts.add(part.name, only_copy=True)
    await session.create(state.znodes.part("0_0_0_0"))
    settling = asyncio.create_task(settle_uncertain_parts(state, session))
    await eventually(lambda: part.state is PartState.ACTIVE)
    assert list(state.uncertain_parts) == []
    settling.cancel()


async def test_unknown_stays_unknown_while_nobody_answers(inserting: Inserting) -> None:
    state = inserting.replica.state
    name = PartName.parse("0_0_0_0")
    state.uncertain_parts.add(name, only_copy=True)
    inserting.replica.before("exists", inserting.replica.session.close)
    await settle_uncertain_parts(state, inserting.replica.session)
    assert list(state.uncertain_parts) == [(name, True)]


async def test_before_its_commit_it_is_served_to_fetches_and_shown_to_nobody(inserting: Inserting) -> None:
    state = inserting.replica.state
    seen: list[object] = []

    async def look() -> None:
        (part,) = state.store.parts()
        served = await inserting.replica.table.send_part("0_0_0_0")
        seen.append((part.state, (await inserting.replica.table.scan(None)).num_rows, len(served.files)))

    while_committing(inserting, look)
    await inserting.insert(2)
    assert seen == [(PartState.PRE_ACTIVE, 0, 4)]
    assert (await inserting.replica.table.scan(None)).num_rows == 1


# --- what is tried again ------------------------------------------------------------------------------------


async def test_an_insert_waits_for_the_table_to_become_writable(inserting: Inserting) -> None:
    state, session = inserting.replica.state, inserting.replica.session
    state.server = replace(state.server, settings=PATIENT)
    state.become_readonly("for a while")
    waiting = asyncio.create_task(inserting.insert(2))
    await asyncio.sleep(0.02)
    activate(state, session)
    assert (await waiting).status is InsertStatus.STORED


async def test_a_session_lost_before_the_number_was_taken_costs_one_more_try(inserting: Inserting) -> None:
    state, replica = inserting.replica.state, inserting.replica
    state.server = replace(state.server, settings=PATIENT)

    async def lose() -> None:
        await replica.session.close()
        activate(state, await state.server.sessions.live())

    replica.before("exists", lose)
    outcome = await inserting.insert(2)
    assert (outcome.status, outcome.part_name) == (InsertStatus.STORED, "0_0_0_0")


# --- a block of several parts -------------------------------------------------------------------------------


async def test_after_a_part_that_failed_the_rest_of_the_block_is_not_tried(inserting: Inserting) -> None:
    (inserting.folder / "1_0_0_0").mkdir(parents=True)
    block = await insert_block(inserting.replica.state, InsertOptions(), 0, rows(1, 2))
    assert [part.status for part in block.parts] == [InsertStatus.NOT_STORED, InsertStatus.NOT_STORED]
    assert "not tried" in block.parts[1].error
    assert inserting.on_disk() == ["1_0_0_0"]
    assert await inserting.replica.session.children(f"{ROOT}/log") == []


async def test_after_a_part_of_unknown_fate_the_rest_of_the_block_is_not_tried(
    inserting: Inserting, cluster: Cluster
) -> None:
    async def cut_off() -> None:
        cluster.delivery.loses = lambda label: True
        inserting.replica.coordinator.sever()

    while_committing(inserting, cut_off)
    block = await insert_block(inserting.replica.state, InsertOptions(), 0, rows(1, 2))
    assert [part.status for part in block.parts] == [InsertStatus.UNKNOWN, InsertStatus.NOT_STORED]
    assert "not tried" in block.parts[1].error
    assert inserting.on_disk() == ["1_0_0_0"]


async def test_equal_blocks_of_one_insert_are_different_under_a_token(inserting: Inserting) -> None:
    options = InsertOptions(insert_deduplication_token="t")
    for number in (0, 1):
        block = await insert_block(inserting.replica.state, options, number, rows(2))
        assert block.status is InsertStatus.STORED
    assert (await insert_block(inserting.replica.state, options, 1, rows(2))).status is InsertStatus.DUPLICATE


async def test_a_column_left_out_is_not_the_same_as_its_default_written_out(inserting: Inserting) -> None:
    keys = pa.array([2], pa.uint64())
    for block in (pa.table({"k": keys}), pa.table({"k": keys, "v": [""]})):
        outcome = await insert_block(inserting.replica.state, InsertOptions(), 0, block)
        assert outcome.status is InsertStatus.STORED


async def test_a_full_disk_leaves_no_temporary_part(inserting: Inserting) -> None:
    disk = inserting.replica.environment.disk
    write = disk.write
    room = [5]

    async def full_soon(path: str, data: bytes) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        await write(path, data)

    disk.write = full_soon  # type: ignore[method-assign]
    block = await insert_block(inserting.replica.state, InsertOptions(), 0, rows(1, 2))
    assert block.status is InsertStatus.NOT_STORED
    assert inserting.on_disk() == []
