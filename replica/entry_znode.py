"""Log entries out of znodes and into them, as far as this replica knows their format version.

The table setting `max_log_entry_format_version` lets a replica be an older release: it writes nothing newer, and
whatever it reads that is newer is to it what a version 8 is to all of them.
"""

from __future__ import annotations

from coordinator.api import Stat
from replica.errors import ClickHouseError, SupportIsDisabled, UnknownFormatVersion
from replica.log_entry import LogEntry
from replica.settings import MergeTreeSettings


def read_entry(path: str, data: bytes, stat: Stat, settings: MergeTreeSettings) -> LogEntry:
    """The entry in the znode at `path`. Raises as `LogEntry.from_znode`, saying which znode and what to do."""
    newest = settings.max_log_entry_format_version
    try:
        return LogEntry.from_znode(data, stat, newest)
    except UnknownFormatVersion as problem:
        raise UnknownFormatVersion(
            f"{_refusal(path, problem)}. This replica reads versions up to {newest}: upgrade it (or raise "
            "max_log_entry_format_version, if that is what holds it), else correct or remove the znode"
        ) from problem
    except ClickHouseError as problem:
        raise type(problem)(f"{_refusal(path, problem)}. Correct or remove the znode") from problem


def _refusal(path: str, problem: ClickHouseError) -> str:
    return f"Cannot read the log entry in {path}, and take none behind it: {problem.message}"


def entry_bytes(entry: LogEntry, settings: MergeTreeSettings) -> bytes:
    """What is to be written. Raises SupportIsDisabled when older replicas could not read it."""
    needed, newest = entry.written_format_version, settings.max_log_entry_format_version
    if needed > newest:
        raise SupportIsDisabled(
            f"An entry of type {entry.type} like this one needs log entry format version {needed}, and this replica "
            f"writes versions up to {newest}: raise max_log_entry_format_version once every replica can read {needed}"
        )
    return entry.to_text().encode()
