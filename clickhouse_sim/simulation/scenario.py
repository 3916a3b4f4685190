"""A scripted story as text: who does what, one step a line, and what is expected of it.

The first line is the title. `#` begins a comment. A step that a client takes may end with `-> OUTCOME`. The words of
each step stand in `GRAMMAR`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from clickhouse_sim.simulation.errors import ScenarioError

OUTCOMES = ("stored", "duplicate", "not stored", "unknown", "done", "refused")

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_WHO = rf"(?P<who>{_NAME})"
_BLOCK = rf"block (?P<block>\d+) into (?P<replica>{_NAME})(?: with token (?P<token>\S+))?"

GRAMMAR = MappingProxyType(
    {
        "replicas": rf"replicas (?P<names>{_NAME}(?: {_NAME})*)",
        "table": r"table (?P<sql>CREATE TABLE .+)",
        "crash": rf"{_WHO} is killed",
        "power": rf"{_WHO} loses power",
        "start": rf"{_WHO} starts",
        "pause": rf"{_WHO} is paused",
        "resume": rf"{_WHO} goes on",
        "cut": rf"{_WHO} is cut off from (?P<other>{_NAME})",
        "heal": rf"{_WHO} reaches (?P<other>{_NAME}) again",
        "lose reply": rf"the reply to the next (?P<multi>commit|block number|pull) of {_WHO} is lost",
        "lose replies": rf"{_WHO} gets no replies to multis",
        "lose requests": rf"no multis of {_WHO} arrive",
        "deliver": rf"multis of {_WHO} arrive again",
        "expire": rf"the session of {_WHO} expires",
        "restart": r"the coordinator restarts",
        "insert": rf"{_WHO} inserts {_BLOCK}",
        "begin": rf"{_WHO} begins to insert {_BLOCK}",
        "begin asking": rf"{_WHO} begins to ask (?P<replica>{_NAME}): (?P<sql>.+)",
        "answer": rf"{_WHO} is answered",
        "ask": rf"{_WHO} asks (?P<replica>{_NAME}): (?P<sql>.+)",
        "wait": r"(?P<seconds>\d+(?:\.\d+)?) s pass",
        "quiet": r"everything is done",
        "once": rf"block (?P<block>\d+) is once on (?P<names>{_NAME}(?: {_NAME})*)",
        "not there": rf"block (?P<block>\d+) is not on (?P<names>{_NAME}(?: {_NAME})*)",
        "parts": rf"{_WHO} has the parts (?P<parts>\S+(?: \S+)*)",
        "queue": rf"the queue of {_WHO} has (?P<count>\d+) entr(?:y|ies)",
        "readonly": rf"{_WHO} is read-only",
        "writable": rf"{_WHO} is writable",
    }
)
"""The steps: how each is written. `coordinator` is a machine's name like those of replicas."""

_ASKED = frozenset({"insert", "answer", "ask"})
_CLIENTS = _ASKED | {"begin", "begin asking"}


@dataclass(frozen=True, slots=True)
class Step:
    """One line; `kind` is a key of the grammar, `values` what its names stand for, `expected` an outcome or empty."""

    line: int
    text: str
    kind: str
    values: dict[str, str]
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story: its title, its replicas, the CREATE TABLE (empty: the standard one), and the steps."""

    title: str
    replicas: tuple[str, ...]
    create_table: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Raises ScenarioError."""
        title, steps = "", []
        for number, line in _lines(text):
            if not title:
                title = line
            else:
                steps.append(_step(number, line))
        if not title:
            raise ScenarioError("the scenario is empty: its first line is its title")
        named = [step for step in steps if step.kind == "replicas"]
        created = [step for step in steps if step.kind == "table"]
        for again in (named[1:] or created[1:])[:1]:
            raise ScenarioError(f"line {again.line}: {again.kind} may stand once: {again.text!r}")
        replicas = tuple(named[0].values["names"].split()) if named else ("r1", "r2", "r3")
        story = tuple(step for step in steps if step.kind not in ("replicas", "table"))
        _check_names(story, replicas)
        return cls(title, replicas, created[0].values["sql"] if created else "", story)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line:
            yield number, line


def _step(number: int, line: str) -> Step:
    sentence, arrow, expected = line.partition(" -> ")
    if arrow and expected not in OUTCOMES:
        raise ScenarioError(f"line {number}: {expected!r} is no outcome; there are {', '.join(OUTCOMES)}")
    for kind, pattern in GRAMMAR.items():
        match = re.fullmatch(pattern, sentence)
        if match is not None:
            if arrow and kind not in _ASKED:
                raise ScenarioError(f"line {number}: only what a client asks has an outcome: {line!r}")
            values = {name: value for name, value in match.groupdict().items() if value is not None}
            return Step(number, line, kind, values, expected)
    raise ScenarioError(f"line {number}: {line!r} is no step that is known; docs/simulation.md lists them")


def _check_names(steps: tuple[Step, ...], replicas: tuple[str, ...]) -> None:
    for step in steps:
        names = [step.values.get("replica"), *step.values.get("names", "").split()]
        if step.kind not in _CLIENTS:
            names += [step.values.get("who"), step.values.get("other")]
        for name in filter(None, names):
            if name not in (*replicas, "coordinator"):
                raise ScenarioError(f"line {step.line}: there is no replica {name}; there are {', '.join(replicas)}")
