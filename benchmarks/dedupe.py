"""The identity gateway: events a second in memory, lines a second as a filter, claims a second on disk."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from benchmarks.report import Row, compared, in_turns
from clickhouse_sim.ingest.gateway import DedupeGateway, Event, SqliteIdentityLedger

_EVENTS = 200_000
_DISTINCT = 100_000
_CLAIMS = 200
_WHAT = f"{_EVENTS:,} events, half of them repeats"


def dedupe() -> list[Row]:
    lines = [_line(number * 7919 % _DISTINCT) for number in range(_EVENTS)]
    with tempfile.TemporaryDirectory(prefix="chsim-bench-") as name:
        folder = Path(name)
        return [*_in_memory(lines), *_as_a_filter(lines, folder / "events.jsonl"), *_on_disk(folder)]


def _line(number: int) -> str:
    page = {"page": f"/item/{number % 1000}", "milliseconds": number % 977}
    return json.dumps({"id": f"event-{number:08d}", "nodeId": f"node-{number % 7}", "sequence": number, **page})


def _in_memory(lines: list[str]) -> list[Row]:
    """The gateway beside a bare set of the ids, which forgets nothing, and beside the reading of the same lines."""
    events: list[Event] = [json.loads(line) for line in lines]
    by_sequence: list[Event] = [{"nodeId": each["nodeId"], "sequence": each["sequence"]} for each in events]
    by_id, by_node, bare, reading = in_turns(
        (lambda: _gateway(events), lambda: _gateway(by_sequence), lambda: _set(events), lambda: _read(lines))
    )
    return [
        _rate(f"gateway, by id, {_WHAT}", by_id, "a set of the ids", bare),
        _rate("gateway, by id", by_id, "json.loads of the lines", reading),
        _rate("gateway, by node and sequence", by_node, "a set of the ids", bare),
    ]


def _gateway(events: list[Event]) -> int:
    gateway = DedupeGateway()
    return sum(map(gateway.filter, events))


def _set(events: list[Event]) -> int:
    seen: set[object] = set()
    for event in events:
        identity = event["id"]
        if identity not in seen:
            seen.add(identity)
    return len(seen)


def _read(lines: list[str]) -> None:
    for line in lines:
        json.loads(line)


def _rate(what: str, ours: float, beside: str, theirs: float) -> Row:
    return compared(what, _EVENTS / ours, beside, _EVENTS / theirs, "{:,.0f} /s", True)


def _as_a_filter(lines: list[str], path: Path) -> list[Row]:
    """The command over a file, its start included, beside jq, which reads and writes the same lines."""
    path.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "clickhouse_sim", "dedupe", str(path)]
    jq = shutil.which("jq")
    if jq is None:
        (ours,) = in_turns((lambda: _run(command),), rounds=3)
        alone = compared("chsim dedupe", _EVENTS / ours, "", None, "{:,.0f} /s", True)
        return [alone, Row("  beside jq", "", "jq is not installed here: apt-get install jq")]
    ours, theirs = in_turns((lambda: _run(command), lambda: _run([jq, "-c", ".", str(path)])), rounds=3)
    return [_rate(f"chsim dedupe, {_WHAT}", ours, "jq -c .", theirs)]


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _on_disk(folder: Path) -> list[Row]:
    """New identities, each synced, beside rows of a bare table in a file of the same settings; and all in one."""
    fresh = (str(number) for number in count())
    ledger = SqliteIdentityLedger(folder / "ledger", 1_000_000)
    bare = sqlite3.connect(folder / "bare", isolation_level=None)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE t (k TEXT PRIMARY KEY)",
    ):
        bare.execute(statement)

    def claim() -> None:
        for _ in range(_CLAIMS):
            ledger.claim(next(fresh), 0)

    def claim_together() -> None:
        with ledger.together():
            claim()

    def insert() -> None:
        for _ in range(_CLAIMS):
            bare.execute("INSERT INTO t VALUES (?)", (next(fresh),))

    one_by_one, together, inserted = in_turns((claim, claim_together, insert))
    ledger.close()
    bare.close()
    form, beside = "{:,.0f} /s", "SQLite INSERT, each synced"
    return [
        compared("ledger claims, each synced", _CLAIMS / one_by_one, beside, _CLAIMS / inserted, form, True),
        compared(f"ledger claims, {_CLAIMS} together", _CLAIMS / together, beside, _CLAIMS / inserted, form, True),
    ]
