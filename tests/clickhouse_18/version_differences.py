"""Where ClickHouse 18.16 and the newer release that is modelled differ, all in one place.

Tests that compare us with 18.16 consult nothing else: what is not named here has to be the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from replica.log_entry import EntryType, LogEntry

# --- what an entry waits for ---------------------------------------------------------------------------------

# 18.16 names the new part alone; the newer release the entry and its type before it.
_OLD_BEGINNING = "Not executing log entry for part {part} because "
_NEW_BEGINNING = "Not executing log entry {znode} of type {type} for part {part} because "

_OLD_ANOTHER_ENTRY = "another log entry for the same part is being processed. This shouldn't happen often."
_NEW_ANOTHER_ENTRY = re.compile(
    r"Not executing log entry (?P<znode>\S+) of type (?P<type>\S+) for part (?P<part>\S*) \(actual part (?P=part)\)"
    r"because another log entry queue-[0-9]{10} of type [A-Z_]+ for the same part \(\S+\) is being processed\."
)

# What 18.16 tries, which counts as a try that failed, the newer release does not even begin.
_NOT_BEGUN_ANY_MORE = {
    "Fetching of part was cancelled": "replicated fetches are cancelled now.",
    "Too many fetches from replicas for table": "{limit} fetches already executing, max {limit}.",
}


def is_same_reason(row: Mapping[str, str], ours: str | None) -> bool:
    """Whether we say of an entry what its row of 18.16's system.replication_queue says."""
    names = {"znode": row["node_name"], "type": row["type"], "part": row["new_part_name"]}
    old = row["postpone_reason"].removeprefix(_OLD_BEGINNING.format(**names))
    if old == _OLD_ANOTHER_ENTRY:
        found = _NEW_ANOTHER_ENTRY.fullmatch(ours or "")
        return found is not None and found.groupdict() == names
    return ours == _NEW_BEGINNING.format(**names) + old


def reason_instead_of_failing(row: Mapping[str, str], fetch_limit: int) -> str | None:
    """What the newer release says of a fetch before a try that failed in 18.16; None if it tries too."""
    if row["type"] == "GET_PART":
        for error, reason in _NOT_BEGUN_ANY_MORE.items():
            if error in row["last_exception"]:
                return (
                    f"Not executing fetch of part {row['new_part_name']} because {reason.format(limit=fetch_limit)}"
                )
    return None


# --- names of parts ------------------------------------------------------------------------------------------

MONTH_SYNTAX = re.compile(r"[0-9]{8}_[0-9]{8}_")
"""How parts of tables made without PARTITION BY are called there; refused here."""

RANGE_WITHOUT_MUTATION = re.compile(r"drop_range_name: \S+_[0-9]+_[0-9]+_4294967295\n")
"""A range to drop as 18.16 writes it into REPLACE_RANGE: without a mutation number, so it does not contain parts that
were mutated. 18.16 drops by block numbers and does not care; the newer release finds that the two intersect."""


# --- what the same script leads to ---------------------------------------------------------------------------

# What scripts keep away from:
# - 18.16 hashes the rows of each partition by themselves, so a part of a block can be a duplicate; the newer release
#   hashes the block. Only whole blocks are repeated.
# - OPTIMIZE without PARTITION or FINAL chooses by the sizes of parts, which are those of the storage.
# - DETACH PARTITION of 18.16 also moves parts that were merged and are not removed yet. No merged part is attached by
#   its name.

_WRITTEN_BY_THE_LEADER = (EntryType.MERGE_PARTS, EntryType.DROP_RANGE)


def comparable(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """The entries that one statement wrote, without what may differ between two runs of a script.

    OPTIMIZE FINAL and TRUNCATE take the partitions in the order of a hash table; an insert in that of its rows.
    """
    shown = [_comparable(entry) for entry in entries]
    in_any_order = all(entry.type in _WRITTEN_BY_THE_LEADER for entry in shown)
    return sorted(shown, key=lambda entry: str(entry.new_part)) if in_any_order else shown


def _comparable(entry: LogEntry) -> LogEntry:
    """Without times, ids (but whether there is one) and the version of the format.

    In the newer release the replica that is asked writes merges and drops, not the leader for everybody; a range to
    drop has a mutation number; what is attached has a type of its own, a checksum, and an id (18.16 takes the same
    part twice).
    """
    shown = replace(
        entry,
        create_time=0,
        block_id="some" if entry.block_id else "",
        format_version=0,
        log_entry_id="",
        source_replica="" if entry.type in _WRITTEN_BY_THE_LEADER else entry.source_replica,
    )
    if entry.type is EntryType.DROP_RANGE and entry.new_part is not None:
        return replace(shown, new_part=replace(entry.new_part, mutation=0))
    if entry.type is EntryType.ATTACH_PART:
        return replace(shown, type=EntryType.GET_PART, part_checksum="", block_id="")
    return shown


# --- what a replica writes -----------------------------------------------------------------------------------

Change = tuple[str, str]
"""One operation of a write, `create /log/log-N`: what is done, and to which kind of znode of the table."""

# What 18.16 writes and the newer release does not.
_GONE = {
    ("check", "/columns"),  # the version of the columns is in the part's header
    ("create", "/replicas/R/parts/PART/columns"),  # the header is the value of the part's znode
    ("create", "/replicas/R/parts/PART/checksums"),
    ("delete", "/replicas/R/parts/PART/columns"),
    ("delete", "/replicas/R/parts/PART/checksums"),
    ("create ephemeral", "/temp/abandonable_lock-N"),  # the number itself is ephemeral
    ("delete", "/temp/abandonable_lock-N"),
    ("create ephemeral", "/leader_election/leader_election-N"),  # every replica is a leader
    ("setData", "/replicas/R/columns"),  # rewritten at every start
    ("setData", "/replicas/R/metadata"),
}
# What the newer release writes besides.
_NEW = {
    ("check", "SESSION"),  # nothing of a session may arrive after it
    ("check", "/replicas/R/host"),  # no partition is made for a replica that is dropped
    ("setData", "/log"),  # two leaders must not assign merges at once
    ("check", "/replicas/OTHER/log_pointer"),  # a clone's source must not have moved on
}
_RENAMED = {"/blocks/ID": "/deduplication_hashes/ID"}

# 18.16 looks whether a block is known in a request of its own, before it takes a number.
_LOOK_FOR_BLOCK = (("create", "/deduplication_hashes/ID"), ("delete", "/deduplication_hashes/ID"))
_TAKE_NUMBER = ("create ephemeral", "/block_numbers/P/block-N")


def comparable_writes(writes: Iterable[tuple[Change, ...]]) -> set[tuple[Change, ...]]:
    """The different kinds of writes of one replica, given in their order, as the newer release would send them.

    Operations that are repeated in a row count once: how many entries are copied at a time is chance. The commit of
    an insert has an order of its own in each release, and that of a merge looks at replicas in any order: what
    writes a part is sorted.
    """
    kinds: set[tuple[Change, ...]] = set()
    looked: tuple[Change, ...] = ()
    for write in writes:
        changes = tuple((op, _RENAMED.get(path, path)) for op, path in write if (op, path) not in _GONE | _NEW)
        if changes == _LOOK_FOR_BLOCK:
            looked = changes
            continue
        if changes == (_TAKE_NUMBER,):
            changes = (*looked, _TAKE_NUMBER)
        looked = ()
        if ("create", "/replicas/R/parts/PART") in changes:
            changes = tuple(sorted(changes))
        changes = tuple(change for change, _ in groupby(changes))
        if any(op != "check" for op, _ in changes):
            kinds.add(changes)
    return kinds


# --- settings ------------------------------------------------------------------------------------------------


def setting_here(name: str, value: int) -> str:
    """A setting of 18.16 as the newer release takes it: there `insert_deduplicate` alone decides nothing any more."""
    if name == "insert_deduplicate":
        return f"deduplicate_insert = '{'enable' if value else 'disable'}'"
    return f"{name} = {value}"
