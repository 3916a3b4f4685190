"""The properties that follow every transaction, each on a history that keeps it and on ones that break it."""

from __future__ import annotations

import pytest

from clickhouse_sim.simulation.properties import (
    commit_is_one,
    done_before_gone,
    legal_log,
    locks_are_ephemeral,
    log_is_copied_once,
)
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.followed import FollowedProperties
from coordinator.processor import Transaction
from coordinator.tree import Change, DataSet, NodeCreated, NodeDeleted
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.znodes import TableZnodes

TABLE = TableZnodes("/t")
R1 = TABLE.replica("r1")


def made(path: str, data: bytes | str = b"", owner: int = 0) -> NodeCreated:
    return NodeCreated(path, data.encode() if isinstance(data, str) else data, (), owner)


def get(part: str, source: str = "r1", block_id: str = "") -> str:
    return LogEntry(
        type=EntryType.GET_PART,
        create_time=1,
        source_replica=source,
        block_id=block_id,
        new_part=PartName.parse(part),
    ).to_text()


def merge(into: str, *sources: str) -> str:
    return LogEntry(
        type=EntryType.MERGE_PARTS,
        create_time=1,
        source_replica="r1",
        new_part=PartName.parse(into),
        source_parts=tuple(map(PartName.parse, sources)),
    ).to_text()


def drop(what: str) -> str:
    return LogEntry(
        type=EntryType.DROP_RANGE, create_time=1, source_replica="r1", new_part=PartName.parse(what)
    ).to_text()


def commit(number: int, part: str, *, block_id: str = "") -> list[Change]:
    """The transaction of an insert, the `number`-th entry of the log."""
    block = PartName.parse(part)
    changes: list[Change] = [
        made(f"/t/log/log-{number:010d}", get(part, block_id=block_id)),
        NodeDeleted(f"/t/block_numbers/{block.partition_id}/block-{block.min_block:010d}"),
        made(R1.part(part), "header"),
    ]
    return [*changes, made(f"/t/deduplication_hashes/{block_id}", part)] if block_id else changes


def copy(pointer: int, *entries: str, first: int = 0) -> list[Change]:
    """The transaction of a pull by r1."""
    queued: list[Change] = [made(f"{R1.queue}/queue-{first + n:010d}", text) for n, text in enumerate(entries)]
    return [*queued, DataSet(R1.log_pointer, str(pointer).encode())]


def broken_by(*transactions: list[Change]) -> tuple[str, str]:
    """Name and evidence of the property that these transactions break, empty if none."""
    followed = FollowedProperties(TABLE)
    for zxid, changes in enumerate(transactions):
        followed.follow(Transaction(zxid, 0, tuple(changes)))
    return (followed.broken.property, str(followed.broken)) if followed.broken else ("", "")


A, B, AB = "p_0_0_0", "p_1_1_0", "p_0_1_1"


def test_an_ordinary_history_breaks_nothing() -> None:
    assert broken_by(
        [made(R1.is_lost, "0"), made(R1.log_pointer)],
        [made("/t/block_numbers/p/block-0000000000", owner=7)],
        commit(0, A, block_id="p_1_2"),
        commit(1, B),
        copy(1, get(A, block_id="p_1_2")),
        copy(2, get(B), first=1),
        [NodeDeleted(R1.queue_entry("queue-0000000000")), NodeDeleted(R1.queue_entry("queue-0000000001"))],
        [made("/t/log/log-0000000002", merge(AB, A, B))],
        copy(3, merge(AB, A, B), first=2),
        [made(R1.part(AB))],
        [NodeDeleted(R1.queue_entry("queue-0000000002"))],
        [made("/t/log/log-0000000003", drop("p_0_5_999999999_999999999"))],
        [NodeDeleted(R1.part(AB))],
    ) == ("", "")


@pytest.mark.parametrize("path", ["/t/block_numbers/p/block-0000000000", "/t/replicas/r1/is_active"])
def test_a_lock_without_a_session(path: str) -> None:
    assert broken_by([made(path)])[0] == locks_are_ephemeral.NAME
    assert broken_by([made(path, owner=3)]) == ("", "")


@pytest.mark.parametrize("left_out", range(1, 4))
def test_a_commit_of_which_something_is_left_out(left_out: int) -> None:
    changes = commit(0, A, block_id="p_1_2")
    del changes[left_out]
    assert broken_by(changes)[0] == commit_is_one.NAME


def test_a_deduplication_id_without_its_part() -> None:
    assert broken_by([made("/t/deduplication_hashes/p_1_2", A)])[0] == commit_is_one.NAME


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(merge(AB, A, "p_1_1_1"), id="of a part that is not there"),
        pytest.param(merge("p_0_2_1", A, B), id="over a part that it leaves out"),
    ],
)
def test_a_merge_that_cannot_be(entry: str) -> None:
    transactions = [commit(0, A), commit(1, B), commit(2, "p_2_2_0"), [made("/t/log/log-0000000003", entry)]]
    assert broken_by(*transactions)[0] == legal_log.NAME


def test_two_merges_that_overlap() -> None:
    inserted = [commit(number, f"p_{number}_{number}_0") for number in range(3)]
    one = [made("/t/log/log-0000000003", merge("p_0_1_1", "p_0_0_0", "p_1_1_0"))]
    other = [made("/t/log/log-0000000004", merge("p_1_2_1", "p_1_1_0", "p_2_2_0"))]
    assert broken_by(*inserted, one, other)[0] == legal_log.NAME


def test_an_insert_below_a_merge_that_was_not_to_be() -> None:
    merged = [made("/t/log/log-0000000002", merge("p_0_2_1", "p_0_0_0", "p_2_2_0"))]
    property, evidence = broken_by(commit(0, "p_0_0_0"), commit(1, "p_2_2_0"), merged, commit(3, "p_1_1_0"))
    assert property == legal_log.NAME
    assert "p_0_2_1 covers it already" in evidence


@pytest.mark.parametrize(
    "pulled",
    [
        pytest.param(copy(2, get(A)), id="one is passed over"),
        pytest.param(copy(2, get(B), get(A)), id="in another order"),
        pytest.param(copy(1, get(A), get(A)), id="one twice"),
        pytest.param([made(f"{R1.queue}/queue-0000000000", get(A))], id="without the pointer"),
        pytest.param(copy(1, get(A, source="r2")), id="with another text"),
    ],
)
def test_a_log_that_is_not_copied_as_it_is(pulled: list[Change]) -> None:
    begun = [made(R1.is_lost, "0"), made(R1.log_pointer)]
    assert broken_by(begun, commit(0, A), commit(1, B), pulled)[0] == log_is_copied_once.NAME


def test_a_lost_replica_may_take_its_queue_from_another_one() -> None:
    cloned: list[Change] = [DataSet(R1.log_pointer, b"2"), made(f"{R1.queue}/queue-0000000000", get(A, source=""))]
    assert broken_by([made(R1.is_lost, "1")], commit(0, A), commit(1, B), cloned) == ("", "")


def test_an_entry_that_is_thrown_away() -> None:
    begun = [made(R1.is_lost, "0"), made(R1.log_pointer)]
    gone = [NodeDeleted(R1.queue_entry("queue-0000000000"))]
    transactions = [begun, commit(0, A), [NodeDeleted(R1.part(A))], copy(1, get(A))]
    assert broken_by(*transactions, gone)[0] == done_before_gone.NAME
    assert broken_by(*transactions, [made(R1.part(AB))], gone) == ("", "")
    dropped = [made("/t/log/log-0000000001", drop("p_0_5_999999999_999999999"))]
    assert broken_by(*transactions, dropped, gone) == ("", "")


def test_only_the_first_violation_is_kept_and_told_once() -> None:
    told: list[int] = []
    followed = FollowedProperties(TABLE)
    followed.on_broken = lambda: told.append(1)
    for zxid in range(3):
        followed.follow(Transaction(zxid, 0, (made(f"/t/block_numbers/p/block-{zxid:010d}"),)))
    assert told == [1]
    assert isinstance(followed.broken, PropertyBroken)
    assert "block-0000000000" in str(followed.broken)
