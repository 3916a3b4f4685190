"""The pure code beside what a real cluster went through: parts, queues and reasons to wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from replica.errors import BadDataPartName, LogicalError
from replica.log_entry import EntryType, LogEntry
from replica.merge_limits import max_bytes_to_merge
from replica.part_name import PartName
from replica.queue import ReplicationQueue
from replica.selection import Limits, select, why_postponed
from replica.settings import MergeTreeSettings
from tests.clickhouse_18.histories import ExpectedParts, History, Moment, every_entry_text, histories, history
from tests.clickhouse_18.version_differences import (
    MONTH_SYNTAX,
    RANGE_WITHOUT_MUTATION,
    is_same_reason,
    reason_instead_of_failing,
)


@dataclass(frozen=True)
class ReplicaState:
    """One replica of one table at one moment, as its znodes tell it."""

    history: History
    number: str
    moment: Moment
    table_root: str
    root: str

    def __str__(self) -> str:
        return f"{self.history.scenario}-{self.number}-{self.root.removeprefix('/clickhouse/tables/01/')}"

    @property
    def parts(self) -> list[str]:
        return list(self.moment.children(f"{self.root}/parts"))

    @property
    def queue(self) -> dict[str, str]:
        return self.moment.children(f"{self.root}/queue")

    @property
    def log_pointer(self) -> int:
        return int(self.moment.znodes[f"{self.root}/log_pointer"] or 0)

    @property
    def served(self) -> tuple[str, str, dict[str, Any]] | None:
        """Server, table and row of system.replicas of the server that had the queue in memory at that moment."""
        for server, tables in self.moment.tables.items():
            for table, row in (tables or {}).items():
                if row["replica_path"] == self.root and row["queue_size"] == len(self.queue):
                    return server, table, row
        return None


def replica_states() -> Iterator[ReplicaState]:
    for each in histories():
        for number, moment in each.moments.items():
            for table_root in moment.table_roots:
                for root in moment.replica_roots(table_root):
                    state = ReplicaState(each, number, moment, table_root, root)
                    if not any(map(MONTH_SYNTAX.match, [*state.parts, *log_names(state)])):
                        yield state


def log_names(state: ReplicaState) -> list[str]:
    """The first names in the bodies of the log's entries."""
    return [text.split("\n")[5] for text in state.history.log_of(state.table_root, state.moment.zxid).values()]


def not_pulled(state: ReplicaState) -> dict[str, str]:
    log = state.history.log_of(state.table_root, state.moment.zxid)
    return {f"queue-9{number:09}": text for number, text in sorted(log.items()) if number >= state.log_pointer}


def meets_mutated_parts(state: ReplicaState, texts: dict[str, str]) -> bool:
    """Whether there is a range to drop that does not contain mutated parts, in a table that has some."""
    has_mutations = any(name.count("_") == 4 for name in state.parts)
    return has_mutations and any(map(RANGE_WITHOUT_MUTATION.search, texts.values()))


STATES = list(replica_states())
LOADABLE = [state for state in STATES if not meets_mutated_parts(state, state.queue)]
PULLABLE = [state for state in LOADABLE if not meets_mutated_parts(state, not_pulled(state))]


def loaded(state: ReplicaState) -> ReplicationQueue:
    """As a server loads it at its start."""
    queue = ReplicationQueue(map(PartName.parse, state.parts))
    for znode_name, text in state.queue.items():
        queue.insert(znode_name, LogEntry.parse(text))
    queue.check_invariant()
    return queue


def data_names(parts: Any) -> list[str]:
    return sorted(str(part) for part in parts if not part.is_fake_drop_range)


# --- entries -------------------------------------------------------------------------------------------------


def test_every_entry_comes_back_byte_for_byte() -> None:
    kinds = set()
    refused = []
    texts = every_entry_text()
    for text in texts:
        try:
            entry = LogEntry.parse(text)
        except BadDataPartName:
            refused.append(text)
            continue
        assert entry.to_text() == text
        kinds.add(entry.type)
    assert kinds == {
        EntryType.GET_PART,
        EntryType.MERGE_PARTS,
        EntryType.DROP_RANGE,
        EntryType.CLEAR_COLUMN,
        EntryType.REPLACE_RANGE,
        EntryType.MUTATE_PART,
    }
    assert len(texts) == 749
    assert len(refused) == 9
    assert all(MONTH_SYNTAX.match(text.split("\n")[5]) for text in refused)


# --- parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", histories(), ids=lambda each: each.scenario)
def test_the_writes_lead_to_the_znodes_of_every_moment(each: History) -> None:
    """So that what is expected below may be derived from the writes."""
    for moment in each.moments.values():
        replayed = each.znodes_at(moment.zxid)
        for root in moment.table_roots:
            dumped = {path: value for path, value in moment.znodes.items() if path.startswith(f"{root}/")}
            assert {path: replayed.get(path) for path in dumped} == dumped
            for folder in (f"{root}/log", *(f"{each}/queue" for each in moment.replica_roots(root))):
                assert {path for path in replayed if path.startswith(f"{folder}/")} <= set(dumped)


def expected_parts(state: ReplicaState, *, pulled_all: bool) -> list[str]:
    """Where the whole log since the table was made leads, entry by entry, up to the replica's pointer.

    A replica has its own inserts before it copies their entries. A part that failed its quorum leaves every queue,
    and the replica that made it when that starts.
    """
    log = state.history.log_of(state.table_root, state.moment.zxid)
    expected = ExpectedParts()
    for number, text in sorted(log.items()):
        kind, name = text.split("\n")[4:6]
        if pulled_all or number < state.log_pointer or (kind == "get" and name in state.parts):
            expected.apply(text)
    failed = f"{state.table_root}/quorum/failed_parts/"
    for path in state.history.znodes_at(state.moment.zxid):
        if path.startswith(failed) and path.removeprefix(failed) not in state.parts:
            expected.names.discard(path.removeprefix(failed))
    return sorted(expected.names)


@pytest.mark.parametrize("state", LOADABLE, ids=str)
def test_virtual_parts_are_where_the_log_leads(state: ReplicaState) -> None:
    assert data_names(loaded(state).virtual_parts) == expected_parts(state, pulled_all=False)


@pytest.mark.parametrize("state", PULLABLE, ids=str)
def test_what_is_left_of_the_log_leads_on(state: ReplicaState) -> None:
    queue = loaded(state)
    for znode_name, text in not_pulled(state).items():
        queue.insert(znode_name, LogEntry.parse(text))
    queue.check_invariant()
    assert data_names(queue.virtual_parts) == expected_parts(state, pulled_all=True)


SERVED = [state for state in LOADABLE if state.served is not None]


@pytest.mark.parametrize("state", SERVED, ids=str)
def test_current_and_future_parts_are_those_of_the_server(state: ReplicaState) -> None:
    assert state.served is not None
    server, table, row = state.served
    queue = loaded(state)
    assert data_names(queue.current_parts) == sorted((state.moment.active_parts[server] or {}).get(table, {}))
    kinds = [queued.entry.type for queued in queue]
    assert kinds.count(EntryType.GET_PART) == row["inserts_in_queue"]
    assert kinds.count(EntryType.MERGE_PARTS) == row["merges_in_queue"]
    assert kinds.count(EntryType.MUTATE_PART) == row["part_mutations_in_queue"]
    executing = [each for each in state.moment.queue_rows(server, table) if each["is_currently_executing"]]
    for each in executing:
        queue.start(queue[each["node_name"]], NOW)
    assert data_names(queue.future_parts) == sorted(each["new_part_name"] for each in executing)


def test_there_is_much_to_compare() -> None:
    assert len(histories()) == 31
    assert len(LOADABLE) > 300
    assert len(SERVED) > 200
    assert len(QUEUED) > 30


def test_a_range_without_a_mutation_meets_mutated_parts() -> None:
    """The one state of 18.16 that the newer release cannot load."""
    (state,) = (state for state in STATES if state not in LOADABLE and "13-mixed" in str(state))
    with pytest.raises(LogicalError, match="201802_0_26_4294967295 intersects next part 201802_5_5_0_19"):
        loaded(state)


@pytest.mark.parametrize("state", [state for state in LOADABLE if state.queue], ids=str)
def test_a_queue_that_is_left_alone_runs_dry(state: ReplicaState) -> None:
    """Entries of every type, mutations, cleared columns and replaced ranges among them, in an order that ends."""
    queue = loaded(state)
    while queue:
        queued = select(queue, NOW, Limits())
        assert queued is not None, [(each.znode_name, each.postpone_reason) for each in queue]
        queue.start(queued, NOW)
        drop_range = queued.entry.drop_range
        needless = [] if drop_range is None else queue.entries_inside(drop_range, queued.entry)
        for each in needless:
            queue.remove(each, successful=False)
        queue.remove(queued)
        queue.finish_attempt(queued)
        queue.check_invariant()
    assert data_names(queue.current_parts) == expected_parts(state, pulled_all=False)


# --- reasons to wait -----------------------------------------------------------------------------------------

FETCH_LIMIT = 1  # replicated_max_parallel_fetches_for_table of 10-fetches-limited
SMALL_MERGES = MergeTreeSettings(  # of r2 in 10-merge-too-large
    number_of_free_entries_in_pool_to_lower_max_size_of_merge=100,
    max_bytes_to_merge_at_max_space_in_pool=100_000,
    max_bytes_to_merge_at_min_space_in_pool=600,
)
POOL_SIZE = 16
ANY_BUSY = 2  # the newer release lowers the limit only once two slots are taken; what counts is the free ones
NOW = 1000.0

QUEUED = [state for state in SERVED if state.queue and state.served and state.moment.queue_rows(*state.served[:2])]


def limits_of(state: ReplicaState) -> Limits:
    assert state.served is not None
    server, table, _ = state.served
    settings = SMALL_MERGES if state.history.scenario == "10-merge-too-large" else MergeTreeSettings()
    sizes = (state.moment.active_parts[server] or {}).get(table, {})
    return Limits(
        fetches_blocked=state.moment.is_stopped("FETCHES", server, table),
        merges_blocked=state.moment.is_stopped("MERGES", server, table),
        part_bytes={PartName.parse(name): size for name, size in sizes.items()},
        max_source_parts_bytes_for_merge=max_bytes_to_merge(ANY_BUSY, POOL_SIZE + ANY_BUSY, None, settings),
        max_bytes_to_merge_at_max_space_in_pool=settings.max_bytes_to_merge_at_max_space_in_pool,
        max_fetches=FETCH_LIMIT if state.history.scenario == "10-fetches-limited" else 16,
        fetches_executing=sum(row["is_currently_executing"] for row in state.moment.queue_rows(server, table)),
    )


def is_waiting(row: dict[str, Any]) -> bool:
    """Whether the reason is of now: it stays when the entry runs, and after a try that failed."""
    return bool(row["postpone_reason"]) and row["last_postpone_time"] > row["last_attempt_time"]


@pytest.mark.parametrize("state", QUEUED, ids=str)
def test_every_entry_waits_for_what_the_server_said(state: ReplicaState) -> None:
    assert state.served is not None
    rows = state.moment.queue_rows(*state.served[:2])
    queue, limits = loaded(state), limits_of(state)
    if not any(row["num_tries"] for row in rows):  # tries put entries to the tail
        assert [row["node_name"] for row in rows] == [queued.znode_name for queued in queue]
    for row in rows:
        if row["is_currently_executing"]:
            queue.start(queue[row["node_name"]], NOW)
    for row in rows:
        queued = queue[row["node_name"]]
        assert str(queued.entry.type) == row["type"]
        if queued.currently_executing:
            continue
        ours = why_postponed(queue, queued, NOW, limits)
        if is_waiting(row):
            assert is_same_reason(row, ours), (row, ours)
        elif row["num_tries"] or not limits.fetches_blocked:
            assert ours == reason_instead_of_failing(row, FETCH_LIMIT), row
        else:  # it has not had its turn yet
            assert ours is None or ours.endswith("replicated fetches are cancelled now.")


def test_a_bigger_part_that_is_being_fetched_is_not_made_by_another_entry() -> None:
    """13-mixed, moment 3: the fetch of a part took what that has become, which another entry was to make."""
    moment = history("13-mixed").moments["3"]
    queue = ReplicationQueue()
    rows = {row["new_part_name"]: row for row in moment.queue_rows("r2", "mix.all_kinds")}
    texts = moment.children(moment.tables["r2"]["mix.all_kinds"]["replica_path"] + "/queue")  # type: ignore[index]
    fetch, mutation = rows["201801_25_25_0"], rows["201801_25_25_0_28"]
    for row in (fetch, mutation):
        queue.insert(row["node_name"], LogEntry.parse(texts[row["node_name"]]))
    fetching = queue[fetch["node_name"]]
    queue.start(fetching, NOW)
    assert queue.take_actual_part(fetching, PartName.parse(mutation["new_part_name"])) is None
    ours = why_postponed(queue, queue[mutation["node_name"]], NOW, Limits())
    assert is_same_reason(mutation, ours), ours
    assert not is_same_reason(mutation, None)
