"""What a real cluster of ClickHouse 18.16 did: `tests/data/clickhouse-18.16/histories`, as values.

Nothing in here knows our code: what the tests expect is read from these values alone.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data/clickhouse-18.16/histories"

_ENTRY = re.compile(r"/(?:log/log|queue/queue)-[0-9]{10}")


@dataclass(frozen=True)
class Operation:
    """One change of a write; `op` is create, delete, setData or check."""

    op: str
    path: str
    data: str = ""
    ephemeral: bool = False
    version: int | None = None


@dataclass(frozen=True)
class Write:
    """One transaction, by the server `by`. The close of a session deletes what was ephemeral."""

    zxid: int
    by: str
    kind: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Moment:
    """What was there after the write `zxid`.

    By server, and by `database.table` below: `tables` are rows of system.replicas, `active_parts` name to bytes,
    `stopped` what SYSTEM STOP held. `replication_queue` are its rows. None for a server that was down.
    """

    zxid: int
    znodes: dict[str, str]
    tables: dict[str, dict[str, dict[str, Any]] | None]
    active_parts: dict[str, dict[str, dict[str, int]] | None]
    replication_queue: dict[str, list[dict[str, Any]] | None]
    stopped: dict[str, dict[str, list[str]]]

    @property
    def table_roots(self) -> list[str]:
        return sorted(path.removesuffix("/log") for path in self.znodes if path.endswith("/log"))

    def replica_roots(self, table_root: str) -> list[str]:
        replica = re.compile(rf"({re.escape(table_root)}/replicas/[^/]+)/queue")
        return sorted(found[1] for path in self.znodes if (found := replica.fullmatch(path)))

    def children(self, parent: str) -> dict[str, str]:
        """Name to value, in the order of names."""
        prefix = f"{parent}/"
        return {
            path.removeprefix(prefix): self.znodes[path] for path in sorted(self.znodes) if path.startswith(prefix)
        }

    def queue_rows(self, server: str, table: str) -> list[dict[str, Any]]:
        """The rows of one table, in order of execution."""
        rows = self.replication_queue.get(server) or []
        return [row for row in rows if f"{row['database']}.{row['table']}" == table]

    def is_stopped(self, action: str, server: str, table: str) -> bool:
        return action in self.stopped.get(server, {}).get(table, [])


@dataclass(frozen=True)
class History:
    scenario: str
    writes: tuple[Write, ...]
    moments: dict[str, Moment]

    def entry_texts(self) -> Iterator[tuple[str, str]]:
        """Path and text of every log and queue entry that ever was."""
        for write in self.writes:
            for operation in write.operations:
                if operation.op == "create" and _ENTRY.search(operation.path):
                    yield operation.path, operation.data

    def znodes_at(self, zxid: int) -> dict[str, str]:
        """All znodes (path to value) that the writes lead to."""
        znodes: dict[str, str] = {}
        for write in self.writes:
            if write.zxid > zxid:
                break
            for operation in write.operations:
                if operation.op in ("create", "setData"):
                    znodes[operation.path] = operation.data
                elif operation.op == "delete":
                    znodes.pop(operation.path, None)
        return znodes

    def log_of(self, table_root: str, zxid: int) -> dict[int, str]:
        """Number to text of every entry that the table's log has had, those that are cut off by now among them."""
        entry = re.compile(rf"{re.escape(table_root)}/log/log-([0-9]{{10}})")
        log: dict[int, str] = {}
        for write in self.writes:
            if write.zxid > zxid:
                break
            for operation in write.operations:
                if operation.op != "create":
                    continue
                if operation.path == f"{table_root}/log":
                    log = {}  # the table is made anew
                elif found := entry.fullmatch(operation.path):
                    log[int(found[1])] = operation.data
        return log


@dataclass
class ExpectedParts:
    """The parts that log entries lead to, done one after another; names are plain texts."""

    names: set[str] = field(default_factory=set)

    def apply(self, text: str) -> None:
        kind, *body = text.split("\n")[4:]
        match kind:
            case "get":
                self.names.add(body[0])
            case "merge":
                into = body.index("into")
                self.names -= set(body[:into])
                self.names.add(body[into + 1])
            case "mutate":
                self.names.discard(body[0])
                self.names.add(body[2])
            case "drop" | "detach":
                self._drop(body[0])
            case "REPLACE_RANGE":
                fields = dict(line.split(": ", 1) for line in body if ": " in line)
                _, first, last, *_ = fields["drop_range_name"].split("_")
                if first != last:
                    self._drop(fields["drop_range_name"])
                self.names |= set(re.findall(r"'([^']+)'", fields["new_parts"]))
            case "clear_column":
                pass
            case _:
                raise AssertionError(f"an entry of a type that this history should not have: {text}")

    def _drop(self, drop_range: str) -> None:
        partition, first, last, *_ = drop_range.split("_")
        for name in sorted(self.names):
            of, low, high, *_ = name.split("_")
            if of == partition and int(first) <= int(low) and int(high) <= int(last):
                self.names.remove(name)


@cache
def histories() -> tuple[History, ...]:
    """All of them, in the order of their names."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.json.xz")))


@cache
def history(scenario: str) -> History:
    return next(each for each in histories() if each.scenario == scenario)


def every_entry_text() -> list[str]:
    """The distinct texts of all log and queue entries, sorted."""
    return sorted({text for each in histories() for _, text in each.entry_texts()})


def _read(path: Path) -> History:
    record = json.loads(lzma.decompress(path.read_bytes()))
    writes = tuple(
        Write(each["zxid"], each["by"], each["kind"], tuple(Operation(**operation) for operation in each["ops"]))
        for each in record["writes"]
    )
    moments = {number: _moment(each) for number, each in record["moments"].items()}
    return History(path.name.removesuffix(".json.xz"), writes, moments)


def _moment(record: dict[str, Any]) -> Moment:
    active: dict[str, dict[str, dict[str, int]] | None] = {}
    for server, parts in record.get("active_parts", {}).items():
        tables: dict[str, dict[str, int]] = {}
        for table, name, size in parts or []:
            tables.setdefault(table, {})[name] = size
        active[server] = None if parts is None else tables
    return Moment(
        zxid=record["zxid"],
        znodes=record["znodes"],
        tables=record.get("tables", {}),
        active_parts=active,
        replication_queue=record.get("replication_queue", {}),
        stopped=record.get("stopped", {}),
    )
