"""An insert whose requests, replies, session or caller are lost, at each of its steps: what it says is true, nothing
is stored twice, the only copy is never thrown away, and to insert the same block again is always safe."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import product

import pytest

from replica.commands import BlockOutcome, InsertStatus
from replica.settings import ServerSettings
from tests.replica.cluster import IMPATIENT, PATIENT, ROOT, Cluster, Replica, eventually, rows

# What the replica asks for on the way, by how its request begins.
STEPS = {
    "is the partition there": f"Exists {ROOT}/block_numbers/0",
    "make the partition": "Multi Check,Create,Set",
    "take a number": "Multi CheckNotExists,Create",
    "commit": "Multi Create,Delete,Create,Create",
}
FAULTS = ("request lost", "reply lost", "session expired", "session expired afterwards", "caller cancelled")
KNOWN = (InsertStatus.STORED, InsertStatus.DUPLICATE)


@dataclass
class Fault:
    """Happens once, when r1 takes the step."""

    cluster: Cluster
    step: str
    kind: str
    task: asyncio.Task[BlockOutcome] | None = None
    number: str = ""
    happened: bool = False

    def loses(self, label: str) -> bool:
        if not label.startswith("r1 "):
            return False
        _, session, what, *rest = label.split(maxsplit=3)
        number, _, title = rest[0].partition(" ") if rest else ("", "", "")
        if what == "request" and not self.happened and title.startswith(self.step):
            self.happened, self.number = True, f"{session} {number}"
            if self.kind == "session expired":
                self.cluster.service.expire(int(session.removeprefix("s")))
            if self.kind == "caller cancelled":
                assert self.task is not None
                self.task.cancel()
            return self.kind == "request lost"
        if what == "reply" and f"{session} {number}" == self.number:
            if self.kind == "session expired afterwards":
                self.cluster.service.expire(int(session.removeprefix("s")))
            return self.kind in ("reply lost", "session expired afterwards")
        return False


async def replica_of(cluster: Cluster, settings: ServerSettings) -> Replica:
    cluster.settings = settings
    make = cluster.coordinator
    cluster.coordinator = lambda client, operation_timeout_seconds=0.6: make(  # type: ignore[method-assign]
        client, operation_timeout_seconds
    )
    replica = await cluster.start("r1")
    await cluster.create_table()
    await cluster.settled()
    return replica


async def insert(replica: Replica, fault: Fault) -> BlockOutcome | None:
    """What the insert says; None when its caller was cancelled."""
    fault.task = asyncio.create_task(replica.insert(rows(2)))
    fault.cluster.delivery.loses = fault.loses
    try:
        return await fault.task
    except asyncio.CancelledError:
        return None
    finally:
        fault.cluster.delivery.loses = lambda label: False


async def check_once_and_for_all(cluster: Cluster, replica: Replica) -> None:
    """Whatever has happened: after a blind retry the row is there once, and nothing is left over."""
    await cluster.writable()
    for _ in range(50):
        status = (await replica.insert(rows(2))).status
        if status in KNOWN:
            break
    assert status in KNOWN
    await eventually(lambda: len(replica.table().state.store.active_parts()) == 1)
    assert await replica.count() == 1
    assert (await replica.insert(rows(2))).status is InsertStatus.DUPLICATE
    session = await cluster.session()
    (part,) = await replica.active_parts()
    assert await session.children(f"{ROOT}/replicas/r1/parts") == [part]
    (id_,) = await session.children(f"{ROOT}/deduplication_hashes")
    assert (await session.get(f"{ROOT}/deduplication_hashes/{id_}"))[0].decode() == part
    folder = cluster.folder / "r1" / "data" / "default" / "t"
    assert [path.name for path in folder.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.parametrize(("step", "kind"), list(product(STEPS, FAULTS)))
async def test_a_patient_insert_gets_through(cluster: Cluster, step: str, kind: str) -> None:
    replica = await replica_of(cluster, PATIENT)
    fault = Fault(cluster, STEPS[step], kind)
    outcome = await insert(replica, fault)
    assert fault.happened
    assert outcome is None if kind == "caller cancelled" else outcome is not None and outcome.status in KNOWN
    await check_once_and_for_all(cluster, replica)


@pytest.mark.parametrize(("step", "kind"), list(product(STEPS, FAULTS)))
async def test_an_impatient_insert_says_what_is_true(cluster: Cluster, step: str, kind: str) -> None:
    replica = await replica_of(cluster, IMPATIENT)
    fault = Fault(cluster, STEPS[step], kind)
    outcome = await insert(replica, fault)
    assert fault.happened
    if outcome is not None:
        session = await cluster.session()
        registered = await session.children(f"{ROOT}/replicas/r1/parts")
        match outcome.status:
            case InsertStatus.STORED | InsertStatus.DUPLICATE:
                assert registered == [outcome.parts[0].part_name]
            case InsertStatus.NOT_STORED:
                assert registered == []
            case InsertStatus.UNKNOWN:
                assert STEPS[step] == STEPS["commit"], "nothing else leaves a doubt"
                folder = cluster.folder / "r1" / "data" / "default" / "t"
                assert (folder / outcome.parts[0].part_name).is_dir(), "the only copy stays"
    await check_once_and_for_all(cluster, replica)


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_duplicate_is_answered_only_after_its_id_was_read(cluster: Cluster, kind: str) -> None:
    replica = await replica_of(cluster, PATIENT)
    await replica.insert(rows(2))
    (id_,) = await (await cluster.session()).children(f"{ROOT}/deduplication_hashes")
    fault = Fault(cluster, f"GetData {ROOT}/deduplication_hashes/{id_}", kind)
    outcome = await insert(replica, fault)
    assert fault.happened
    if outcome is not None:
        assert outcome.status is InsertStatus.DUPLICATE
        assert outcome.parts[0].part_name == "0_0_0_0"
        assert outcome.parts[0].duplicate_since > 0
    await check_once_and_for_all(cluster, replica)
