"""Whole histories of a queue, invented; those of a real cluster are in tests/clickhouse_18."""

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.queue import QueuedEntry, ReplicationQueue
from replica.selection import Limits, select

T = TypeVar("T")


def data_parts(parts: Any) -> list[PartName]:
    return [part for part in parts if not part.is_fake_drop_range]


numbers = st.integers(0, 999)


def nth(items: Iterable[T], number: int) -> T:
    """One of the items; every number names one."""
    members = list(items)
    return members[number % len(members)]


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

    @rule(partition=st.sampled_from("ab"), parts=st.integers(1, 4))
    def insert(self, partition: str, parts: int) -> None:
        for _ in range(parts):
            self.log(EntryType.GET_PART, new_part=PartName.inserted(partition, self.new_block(partition)))

    @rule(partition=st.sampled_from("ab"))
    def attach(self, partition: str) -> None:
        self.log(EntryType.ATTACH_PART, new_part=PartName.inserted(partition, self.new_block(partition)))

    @precondition(lambda self: len(self.truth) > 1)
    @rule(which=numbers, length=st.integers(1, 4))
    def merge(self, which: int, length: int) -> None:
        first = nth(self.truth, which)
        following = [part for part in self.truth if part.partition_id == first.partition_id and part >= first]
        sources = following[:length]
        level = max(part.level for part in sources) + 1
        new_part = PartName(first.partition_id, first.min_block, sources[-1].max_block, level)
        self.log(EntryType.MERGE_PARTS, new_part=new_part, source_parts=tuple(sources))

    @rule(partition=st.sampled_from("ab"))
    def drop_range(self, partition: str) -> None:
        block = self.new_block(partition)
        if block:
            self.log(EntryType.DROP_RANGE, new_part=PartName.drop_range(partition, block - 1))

    @precondition(lambda self: len(self.truth) > 0)
    @rule(which=numbers)
    def drop_part(self, which: int) -> None:
        self.log(EntryType.DROP_PART, new_part=nth(self.truth, which))

    @rule(partition=st.sampled_from("ab"), drops=st.booleans(), parts=st.integers(0, 3))
    def replace_range(self, partition: str, drops: bool, parts: int) -> None:
        block = self.new_block(partition)
        drop_range = PartName.drop_range(partition, block) if drops else PartName.inserted(partition, 0)
        new = [PartName.inserted(partition, self.new_block(partition)) for _ in range(parts)]
        replaced = tuple(ReplacedPart(PartName.inserted("src", 0), part, "") for part in new)
        self.log(EntryType.REPLACE_RANGE, replace_range=ReplaceRange(drop_range, "d", "t", replaced))

    # --- attempts ---

    @rule(attempts=st.integers(1, 6))
    def start(self, attempts: int) -> None:
        for _ in range(attempts):
            self.now += 1000
            queued = select(self.queue, self.now, Limits())
            if queued is not None:
                self.queue.start(queued, self.now)
                self.running.append(queued)

    @precondition(lambda self: self.running)
    @rule(which=numbers, successful=st.booleans())
    def take_a_bigger_part(self, which: int, successful: bool) -> None:
        queued = nth(self.running, which)
        part = queued.entry.new_part
        if queued.entry.type is not EntryType.GET_PART or part is None or queued.actual_new_parts:
            return
        bigger = self.queue.virtual_parts.containing(part)
        if bigger is None or bigger == part or bigger.is_fake_drop_range:
            return
        if self.queue.take_actual_part(queued, bigger) is None:
            for older in self.queue.executing_below(queued, bigger):
                self.end(older, successful)

    @precondition(lambda self: self.running)
    @rule(which=numbers, successful=st.booleans())
    def end_one(self, which: int, successful: bool) -> None:
        self.end(nth(self.running, which), successful)

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

    @precondition(lambda self: len(self.queue) > 1)
    @rule(which=numbers)
    def put_siblings_off(self, which: int) -> None:
        part = nth(self.queue, which).entry.new_part
        if part is not None:
            self.queue.move_siblings_to_tail(part)

    @precondition(lambda self: len(self.queue) > 4)
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
            self.start(attempts=1)
            if self.running:
                self.end(self.running[0], successful=True)
        assert len(self.queue) == 0
        assert list(self.active) == list(self.truth) == list(self.queue.current_parts)
        assert not self.queue.future_parts
        assert self.queue.min_unprocessed_insert_time == 0


TestQueueHistory = QueueHistory.TestCase
TestQueueHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


OFTEN = ["insert", "merge", "start", "end", "bigger"]
SELDOM = ["drop part", "drop range", "replace", "attach", "siblings", "restart"]


@pytest.mark.parametrize("seed", range(40))
def test_long_histories(seed: int) -> None:
    """The same rules, drawn evenly: deep queues, many attempts at a time."""
    draw = random.Random(seed)
    history = QueueHistory()
    history.begin()
    for _ in range(150):
        match draw.choice(draw.choice([OFTEN, OFTEN, SELDOM])):
            case "insert":
                history.insert(draw.choice("ab"), draw.randint(1, 4))
            case "attach":
                history.attach(draw.choice("ab"))
            case "merge" if history.truth:
                history.merge(draw.randrange(999), draw.randint(1, 4))
            case "drop range":
                history.drop_range(draw.choice("ab"))
            case "drop part" if history.truth:
                history.drop_part(draw.randrange(999))
            case "replace":
                history.replace_range(draw.choice("ab"), draw.choice([True, False]), draw.randint(0, 3))
            case "start":
                history.start(draw.randint(1, 6))
            case "end" if history.running:
                history.end_one(draw.randrange(999), draw.random() < 0.7)
            case "bigger" if history.running:
                history.take_a_bigger_part(draw.randrange(999), draw.choice([True, False]))
            case "siblings" if history.queue:
                history.put_siblings_off(draw.randrange(999))
            case "restart" if draw.random() < 0.2:
                history.restart()
        history.virtual_is_current_and_queue()
        history.virtual_is_where_the_log_leads()
        history.parts_on_disk_are_on_the_way()
    history.teardown()
