"""The language of the twin runs: a text that is run on a cluster of ours and on one of ClickHouse alike.

    r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')     a statement on one replica
    r1 insert_deduplicate=0: INSERT INTO …              with a setting
    settle                                              every replica has done what the log asks
    kill r2                                             SIGKILL; goes on when its session has run out
    start r2                                            goes on when it takes writes
    create r2                                           the table anew, after a DROP TABLE there

Any statement that both understand can be written. The table is always `t`: `(d Date, k UInt64, s String)`, by month,
sorted by k, without merges that nobody asked for. Two replicas, r1 and r2. What begins with # is a remark.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from enum import StrEnum

REPLICAS = ("r1", "r2")

_STATEMENT = re.compile(r"(?P<replica>r[12])(?P<settings>(?: \w+=\d+)*): (?P<sql>.+)")
_CHANGE = re.compile(r"(?P<act>kill|start|create) (?P<replica>r[12])")


class Act(StrEnum):
    """What a step does."""

    SQL = "sql"
    SETTLE = "settle"
    KILL = "kill"
    START = "start"
    CREATE = "create"


@dataclass(frozen=True)
class Step:
    act: Act
    replica: str = ""
    sql: str = ""
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def is_insert(self) -> bool:
        return self.sql.startswith("INSERT")


def parse_script(text: str) -> list[Step]:
    """Raises ValueError for a line that is none of the language."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [_parse_step(line) for line in lines if line]


def _parse_step(line: str) -> Step:
    if line == "settle":
        return Step(Act.SETTLE)
    if found := _CHANGE.fullmatch(line):
        return Step(Act(found["act"]), found["replica"])
    if found := _STATEMENT.fullmatch(line):
        settings = (setting.split("=") for setting in found["settings"].split())
        return Step(Act.SQL, found["replica"], found["sql"], {name: int(value) for name, value in settings})
    raise ValueError(f"not a step of a script: {line}")


# --- scripts by chance ---------------------------------------------------------------------------------------

_MONTHS = ("2018-01", "2018-02", "2018-03")
_OPTIMIZES = (
    "PARTITION {month}",
    "PARTITION {month} FINAL",
    "FINAL",
    "PARTITION {month} DEDUPLICATE",
    "FINAL DEDUPLICATE",
)
_STOPPABLE = ("FETCHES", "REPLICATION QUEUES")


@dataclass
class _Author:
    """Writes a script. Before an OPTIMIZE everything is settled, so that only one choice of parts is right."""

    draw: random.Random
    lines: list[str] = field(default_factory=list)
    inserts: list[str] = field(default_factory=list)
    pieces: set[str] = field(default_factory=set)
    stopped: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in REPLICAS})
    with_drops: bool = False
    next_key: int = 0
    only: str = ""  # the replica that is not away

    def write(self, steps: int) -> str:
        acts = {self.insert: 16, self.repeat: 6, self.insert_twice: 2, self.optimize: 8, self.stop: 4, self.start: 6}
        acts |= {self.sync: 2, self.restart: 1, self.away: 1, self.drop: 5 if self.with_drops else 0}
        for act in self.draw.choices(list(acts), weights=list(acts.values()), k=steps):
            act()
        self.settle()
        return "\n".join(self.lines)

    def say(self, replica: str, sql: str, settings: str = "") -> None:
        self.lines.append(f"{replica}{settings}: {sql}")

    def anybody(self) -> str:
        return self.only or self.draw.choice(REPLICAS)

    def insert(self) -> None:
        rows: dict[str, list[str]] = {}
        for _ in range(self.draw.choice([1, 1, 2, 5])):
            # A key that comes again has the same text, so that DEDUPLICATE has something to find.
            key = self.next_key if self.draw.random() < 0.8 else self.draw.randint(0, self.next_key)
            self.next_key = max(self.next_key, key + 1)
            month = self.draw.choice(_MONTHS)
            rows.setdefault(month, []).append(f"('{month}-{1 + key % 28:02}', {key}, 'text {key}')")
        pieces = {str(sorted(piece)) for piece in rows.values()}
        if pieces & self.pieces:
            return  # a part of the block would be a duplicate in 18.16 alone: see version_differences
        self.pieces |= pieces
        block = [row for piece in rows.values() for row in piece]
        self.draw.shuffle(block)
        self.inserts.append(f"INSERT INTO t VALUES {', '.join(block)}")
        self.say(self.anybody(), self.inserts[-1])

    def repeat(self) -> None:
        """The same block, to either replica: it is a duplicate."""
        if self.inserts:
            self.say(self.anybody(), self.draw.choice(self.inserts))

    def insert_twice(self) -> None:
        if self.inserts:
            self.say(self.anybody(), self.draw.choice(self.inserts), " insert_deduplicate=0")

    def optimize(self) -> None:
        self.settle()
        how = self.draw.choice(_OPTIMIZES).format(month=self.draw.choice(_MONTHS).replace("-", ""))
        self.say(self.anybody(), f"OPTIMIZE TABLE t {how}")

    def stop(self) -> None:
        replica, action = self.anybody(), self.draw.choice(_STOPPABLE)
        if action not in self.stopped[replica]:
            self.stopped[replica].append(action)
            self.say(replica, f"SYSTEM STOP {action} t")

    def start(self) -> None:
        replica = self.anybody()
        if self.stopped[replica]:
            self.say(replica, f"SYSTEM START {self.stopped[replica].pop(0)} t")

    def sync(self) -> None:
        replica = self.anybody()
        if not any(self.stopped.values()):
            self.say(replica, "SYSTEM SYNC REPLICA t")

    def restart(self) -> None:
        """What was stopped there goes on then."""
        replica = self.anybody()
        self.stopped[replica].clear()
        self.say(replica, "SYSTEM RESTART REPLICA t")

    def drop(self) -> None:
        """A month goes, with whatever is under way in it; its blocks may come again."""
        month = self.draw.choice(_MONTHS)
        self.say(self.anybody(), f"ALTER TABLE t DROP PARTITION {month.replace('-', '')}")

    def away(self) -> None:
        """A replica is killed, while the other one goes on for a while."""
        self.settle()
        dead, alive = self.draw.sample(REPLICAS, 2)
        self.lines.append(f"kill {dead}")
        self.only = alive
        for _ in range(self.draw.randint(1, 5)):
            self.draw.choices([self.insert, self.repeat, self.optimize], weights=[4, 2, 1])[0]()
        self.only = ""
        self.lines.append(f"start {dead}")

    def settle(self) -> None:
        for replica in REPLICAS:
            while self.stopped[replica]:
                self.say(replica, f"SYSTEM START {self.stopped[replica].pop(0)} t")
        self.lines.append("settle")


def random_script(seed: int, steps: int = 25, *, with_drops: bool = False) -> str:
    """A script drawn from the seed; the same seed gives the same script."""
    return _Author(random.Random(seed), with_drops=with_drops).write(steps)
