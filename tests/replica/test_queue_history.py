"""Whole histories: invented ones, and what a real cluster had in its znodes."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.queue import QueuedEntry, ReplicationQueue
from replica.selection import Limits, select

REAL_STATES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/clickhouse-18.16/queue_states.jsonl").read_text().splitlines()
]


def data_parts(parts: Any) -> list[PartName]:
    return [part for part in parts if not part.is_fake_drop_range]


@pytest.mark.parametrize(
    "state", REAL_STATES, ids=[f"{state['scenario']}-{state['moment']}-{state['table']}" for state in REAL_STATES]
)
def test_real_znodes_give_the_parts_that_the_servers_had(state: dict[str, Any]) -> None:
    expected_later = []
    for replica in state["replicas"].values():
        queue = ReplicationQueue(map(PartName.parse, replica["parts"]))
        for znode_name, text in replica["queue"].items():
            queue.insert(znode_name, LogEntry.parse(text))
        queue.check_invariant()
        if replica["active"] is not None:
            assert sorted(map(str, queue.current_parts)) == replica["active"]
        for number, text in enumerate(replica["log_not_pulled"]):
            queue.insert(f"queue-9{number:09}", LogEntry.parse(text))
        queue.check_invariant()
        expected_later.append(data_parts(queue.virtual_parts))
    # Whatever a replica has not done yet: once it has, all have the same.
    assert all(parts == expected_later[0] for parts in expected_later)


class QueueHistory(RuleBasedStateMachine):
    """One replica that follows a legal log: entries arrive, attempts start, fail and succeed in any order.

    `active` are the parts on its disk: what the attempts really made, bigger parts that they fetched instead among
    them. `truth` is the log executed in its own order.
    """

    @initialize()
    def begin(self) -> None:
        self.queue = ReplicationQueue()
        self.active = PartSet()
        self.truth = PartSet()
        self.running: list[QueuedEntry] = []
        self.entries = 0
        self.next_block = {"a": 0, "b": 0}
        self.now = 0.0

    def log(self, kind: EntryType, **fields: Any) -> None:
        entry = LogEntry(kind, self.entries + 1, "r1", **fields)
        for part in entry.virtual_parts:
            self.truth.add(part)
        if entry.drop_range is not None:
            self.truth.remove_with_covered(entry.drop_range)
        self.queue.insert(f"queue-{self.entries:010}", entry)
        self.entries += 1

    def new_block(self, partition: str) -> int:
        self.next_block[partition] += 1
        return self.next_block[partition] - 1

    # --- the log grows ---

    @rule(partition=st.sampled_from("ab"), kind=st.sampled_from([EntryType.GET_PART, EntryType.ATTACH_PART]))
    def insert(self, partition: str, kind: EntryType) -> None:
        self.log(kind, new_part=PartName.inserted(partition, self.new_block(partition)))

    @precondition(lambda self: len(self.truth) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(list(self.truth)))
        following = [part for part in self.truth if part.partition_id == first.partition_id and part >= first]
        sources = following[: data.draw(st.integers(1, 4))]
        level = max(part.level for part in sources) + 1
        new_part = PartName(first.partition_id, first.min_block, sources[-1].max_block, level)
        self.log(EntryType.MERGE_PARTS, new_part=new_part, source_parts=tuple(sources))

    @rule(partition=st.sampled_from("ab"))
    def drop_range(self, partition: str) -> None:
        block = self.new_block(partition)
        if block:
            self.log(EntryType.DROP_RANGE, new_part=PartName.drop_range(partition, block - 1))

    @precondition(lambda self: len(self.truth) > 0)
    @rule(data=st.data())
    def drop_part(self, data: st.DataObject) -> None:
        self.log(EntryType.DROP_PART, new_part=data.draw(st.sampled_from(list(self.truth))))

    @rule(partition=st.sampled_from("ab"), drops=st.booleans(), parts=st.integers(0, 3))
    def replace_range(self, partition: str, drops: bool, parts: int) -> None:
        block = self.new_block(partition)
        drop_range = PartName.drop_range(partition, block) if drops else PartName.inserted(partition, 0)
        new = [PartName.inserted(partition, self.new_block(partition)) for _ in range(parts)]
        replaced = tuple(ReplacedPart(PartName.inserted("src", 0), part, "") for part in new)
        self.log(EntryType.REPLACE_RANGE, replace_range=ReplaceRange(drop_range, "d", "t", replaced))

    # --- attempts ---

    @rule()
    def start(self) -> None:
        self.now += 1000
        queued = select(self.queue, self.now, Limits())
        if queued is not None:
            self.queue.start(queued, self.now)
            self.running.append(queued)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def take_a_bigger_part(self, data: st.DataObject) -> None:
        queued = data.draw(st.sampled_from(self.running))
        part = queued.entry.new_part
        if queued.entry.type is not EntryType.GET_PART or part is None or queued.actual_new_parts:
            return
        bigger = self.queue.virtual_parts.containing(part)
        if bigger is None or bigger == part or bigger.is_fake_drop_range:
            return
        if self.queue.take_actual_part(queued, bigger) is None:
            for older in self.queue.executing_below(queued, bigger):
                self.end(older, successful=data.draw(st.booleans()))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), successful=st.booleans())
    def end_one(self, data: st.DataObject, successful: bool) -> None:
        self.end(data.draw(st.sampled_from(self.running)), successful)

    def end(self, queued: QueuedEntry, successful: bool) -> None:
        entry = queued.entry
        if successful:
            drop_range = entry.drop_range
            if drop_range is not None:
                self.drop(queued, drop_range)
            for part in queued.actual_new_parts or data_parts(entry.virtual_parts):
                self.active.add(part)
            self.queue.remove(queued)
        else:
            self.queue.fail(queued, "no replica has it", self.now)
        self.running.remove(queued)
        self.queue.finish_attempt(queued)

    def drop(self, queued: QueuedEntry, drop_range: PartName) -> None:
        for needless in self.queue.entries_inside(drop_range, queued.entry):
            assert needless is not queued
            self.queue.remove(needless, successful=False)
            if needless.currently_executing:
                self.running.remove(needless)
                self.queue.finish_attempt(needless)
        self.active.remove_with_covered(drop_range)

    @rule(data=st.data())
    def put_siblings_off(self, data: st.DataObject) -> None:
        if len(self.queue):
            part = data.draw(st.sampled_from(list(self.queue))).entry.new_part
            if part is not None:
                self.queue.move_siblings_to_tail(part)

    @rule()
    def restart(self) -> None:
        """All attempts are gone; the parts come from the disk, the queue from its znodes."""
        waiting = sorted((queued.znode_name, queued.entry) for queued in self.queue)
        self.running.clear()
        self.queue.initialize(self.active)
        for znode_name, entry in waiting:
            self.queue.insert(znode_name, entry)

    # --- what holds ---

    @invariant()
    def virtual_is_current_and_queue(self) -> None:
        self.queue.check_invariant()

    @invariant()
    def virtual_is_where_the_log_leads(self) -> None:
        assert data_parts(self.queue.virtual_parts) == list(self.truth)

    @invariant()
    def parts_on_disk_are_on_the_way(self) -> None:
        for parts in (self.active, self.queue.current_parts, self.queue.virtual_parts):
            members = list(parts)
            for one, other in pairwise(members):
                assert one.is_disjoint(other)
        for part in self.queue.current_parts:
            assert self.active.containing(part) is not None

    def teardown(self) -> None:
        """Left alone, the replica gets there."""
        if not hasattr(self, "queue"):
            return
        while self.running:
            self.end(self.running[0], successful=True)
        for _ in range(len(self.queue)):
            self.start()
            if self.running:
                self.end(self.running[0], successful=True)
        assert len(self.queue) == 0
        assert list(self.active) == list(self.truth) == list(self.queue.current_parts)
        assert not self.queue.future_parts
        assert self.queue.min_unprocessed_insert_time == 0


TestQueueHistory = QueueHistory.TestCase
TestQueueHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
