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
from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
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


def attach(part: str) -> str:
    return LogEntry(
        type=EntryType.ATTACH_PART,
        create_time=1,
        source_replica="r1",
        block_id="p_1_2",
        new_part=PartName.parse(part),
        part_checksum="0" * 32,
    ).to_text()


def drop_part(part: str) -> str:
    return LogEntry(
        type=EntryType.DROP_PART, create_time=1, source_replica="r1", new_part=PartName.parse(part)
    ).to_text()


def replace_range(what: str, *parts: str) -> str:
    replaced = tuple(ReplacedPart(PartName.parse("p_0_0_0"), PartName.parse(part), "0" * 32) for part in parts)
    return LogEntry(
        type=EntryType.REPLACE_RANGE,
        create_time=1,
        source_replica="r1",
        replace_range=ReplaceRange(PartName.parse(what), "default", "s", replaced),
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
FIRST_SIX = "p_0_5_999999999_999999999"


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
        [made("/t/log/log-0000000003", drop(FIRST_SIX))],
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


def test_an_attached_part_comes_in_as_an_insert_does() -> None:
    whole = commit(0, A, block_id="p_1_2")
    whole[0] = made("/t/log/log-0000000000", attach(A))
    assert broken_by(whole) == ("", "")
    for left_out in range(1, 4):
        assert broken_by([each for each in whole if each is not whole[left_out]])[0] == commit_is_one.NAME


def replacement(number: int, entry: str, *parts: str) -> list[Change]:
    """The transaction of a REPLACE or ATTACH PARTITION FROM."""
    changes: list[Change] = [made(f"/t/log/log-{number:010d}", entry)]
    for part in parts:
        block = PartName.parse(part).min_block
        changes += [NodeDeleted(f"/t/block_numbers/p/block-{block:010d}"), made(R1.part(part), "header")]
    return changes


def test_parts_that_replace_others_come_in_one_transaction() -> None:
    first, second = "p_6_6_0", "p_7_7_0"
    whole = replacement(1, replace_range(FIRST_SIX, first, second), first, second)
    assert broken_by(commit(0, A), whole) == ("", "")
    for left_out in range(1, 5):
        part = [each for each in whole if each is not whole[left_out]]
        assert broken_by(commit(0, A), part)[0] == commit_is_one.NAME
    known = made("/t/blocks/p_replace_from_00", first)
    assert broken_by([*whole, known]) == ("", "")
    assert broken_by([*whole, made("/t/blocks/p_replace_from_00", "p_8_8_0")])[0] == commit_is_one.NAME


def test_the_id_of_another_part() -> None:
    changes = commit(0, A)
    assert broken_by([*changes, made("/t/async_blocks/p_1_2", A)]) == ("", "")
    assert broken_by([*changes, made("/t/async_blocks/p_1_2", B)])[0] == commit_is_one.NAME


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(commit(2, "p_5_5_0"), id="an insert"),
        pytest.param(replacement(2, replace_range(A, "p_3_3_0"), "p_3_3_0"), id="a copy"),
    ],
)
@pytest.mark.parametrize("dropped", [drop(FIRST_SIX), replace_range(FIRST_SIX)])
def test_a_part_that_comes_after_the_range_that_drops_it(dropped: str, late: list[Change]) -> None:
    gone = [made("/t/log/log-0000000001", dropped)]
    property, evidence = broken_by(commit(0, A), gone, late)
    assert property == legal_log.NAME
    assert "dropped before" in evidence
    assert broken_by(commit(0, A), gone, commit(2, "p_6_6_0")) == ("", "")
    forgotten: list[Change] = [NodeDeleted("/t/block_numbers/p")]
    assert broken_by(commit(0, A), gone, forgotten, late) == ("", "")


def test_a_part_is_dropped_once_and_only_as_it_is() -> None:
    merged = [made("/t/log/log-0000000002", merge(AB, A, B))]
    gone = [made("/t/log/log-0000000003", drop_part(AB))]
    begun = [commit(0, A), commit(1, B), merged]
    assert broken_by(*begun, gone) == ("", "")
    assert broken_by(*begun, gone, [made("/t/log/log-0000000004", drop_part(AB))])[0] == legal_log.NAME
    assert broken_by(*begun, [made("/t/log/log-0000000003", drop_part(A))])[0] == legal_log.NAME
    again = [made("/t/log/log-0000000004", merge("p_0_2_2", AB, "p_2_2_0"))]
    assert broken_by(*begun, gone, commit(9, "p_2_2_0"), again)[0] == legal_log.NAME


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
    dropped = [made("/t/log/log-0000000001", drop(FIRST_SIX))]
    assert broken_by(*transactions, dropped, gone) == ("", "")
    again: list[Change] = [made(f"{R1.queue}/queue-0000000009", get(AB, source=""))]
    assert broken_by(*transactions, again, gone) == ("", "")


@pytest.mark.parametrize("entry", [drop(FIRST_SIX), drop_part(A), replace_range(FIRST_SIX)])
def test_a_drop_that_is_thrown_away(entry: str) -> None:
    begun = [made(R1.is_lost, "0"), made(R1.log_pointer)]
    taken = [begun, commit(0, A), [made("/t/log/log-0000000001", entry)], copy(2, get(A), entry)]
    gone: list[Change] = [NodeDeleted(R1.queue_entry("queue-0000000001"))]
    assert broken_by(*taken, gone)[0] == done_before_gone.NAME
    assert broken_by(*taken, [NodeDeleted(R1.part(A))], gone) == ("", "")
    wider = drop("p_0_7_999999999_999999999")
    left_to_it = [[made("/t/log/log-0000000002", wider)], copy(3, wider, first=2)]
    assert broken_by(*taken, *left_to_it, gone) == ("", "")


def test_a_replacement_that_is_thrown_away() -> None:
    begun = [made(R1.is_lost, "0"), made(R1.log_pointer)]
    parts = ("p_6_6_0", "p_7_7_0")
    entry = replace_range(FIRST_SIX, *parts)
    taken = [begun, replacement(0, entry, *parts), copy(1, entry)]
    gone: list[Change] = [NodeDeleted(R1.queue_entry("queue-0000000000"))]
    assert broken_by(*taken, gone) == ("", "")
    assert broken_by(*taken, [NodeDeleted(R1.part(parts[1]))], gone)[0] == done_before_gone.NAME
    dropped = [made("/t/log/log-0000000001", drop("p_0_7_999999999_999999999"))]
    assert broken_by(*taken, dropped, [NodeDeleted(R1.part(parts[1]))], gone) == ("", "")


def test_only_the_first_violation_is_kept_and_told_once() -> None:
    told: list[int] = []
    followed = FollowedProperties(TABLE)
    followed.on_broken = lambda: told.append(1)
    for zxid in range(3):
        followed.follow(Transaction(zxid, 0, (made(f"/t/block_numbers/p/block-{zxid:010d}"),)))
    assert told == [1]
    assert isinstance(followed.broken, PropertyBroken)
    assert "block-0000000000" in str(followed.broken)
