"""The folder of one run: all that is needed to read, judge and replay it.

`tape.jsonl` every draw, `events.log` one line an event, `history.jsonl` what clients asked and were answered,
`coordinator.jsonl` every message of the coordination service, `verdict.json`, and `story.html`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import clickhouse_sim
from clickhouse_sim.simulation.errors import NotARun
from clickhouse_sim.simulation.history import PLANS, Plan
from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.story import story_page
from clickhouse_sim.simulation.tape import Draw, Tape
from clickhouse_sim.simulation.verdict import Ending, Verdict
from coordinator.local_client import Exchange

TAPE = "tape.jsonl"
EVENTS = "events.log"
HISTORY = "history.jsonl"
COORDINATOR = "coordinator.jsonl"
VERDICT = "verdict.json"
STORY = "story.html"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a replay needs of a run."""

    seed: int
    plan_name: str
    draws: list[Draw]
    verdict: Verdict
    trace_hash: str

    @property
    def plan(self) -> Plan:
        return PLANS[self.plan_name]


def write_run(
    folder: Path, title: str, drawn: tuple[int, str] | None, tape: Tape, verdict: Verdict, recording: Recording
) -> None:
    """Write everything into the folder, which is made; `latest` beside it then points there. Raises OSError.

    `drawn` is the seed of the history and the name of its plan, None for a scenario, which draws nothing.
    """
    folder.mkdir(parents=True)
    _write_lines(folder / TAPE, (draw._asdict() for draw in tape.draws))
    legend = (f"# {mark.value}  {mark.meaning}\n" for mark in Mark)
    (folder / EVENTS).write_text("".join([*legend, *(f"{event}\n" for event in recording.events)]), "utf-8")
    _write_lines(folder / HISTORY, map(asdict, recording.operations))
    _write_lines(folder / COORDINATOR, (_message(seconds, each) for seconds, each in recording.exchanges))
    record = {
        "title": title,
        "seed": drawn[0] if drawn else None,
        "plan": drawn[1] if drawn else None,
        "ending": str(verdict.ending),
        "property": verdict.property,
        "message": verdict.message,
        "trace_hash": recording.trace_hash(),
        "draws": len(tape),
        "version": clickhouse_sim.__version__,
        "report": None if verdict.report is None else asdict(verdict.report),
    }
    (folder / VERDICT).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    failure = "" if verdict.ending is Ending.HELD else f"{verdict.property}: {verdict.message}".lstrip(": ")
    replay = f"chsim simulate replay {folder}" if drawn else ""
    (folder / STORY).write_text(story_page(title, verdict.ending, failure, replay, recording), "utf-8")
    _point_latest_at(folder)


def read_run(folder: Path) -> RecordedRun:
    """Raises NotARun."""
    try:
        record = json.loads((folder / VERDICT).read_text("utf-8"))
        if record["seed"] is None:
            raise NotARun(f"{folder} is of a scenario: play it again with --scenario")
        lines = (folder / TAPE).read_text("utf-8").splitlines()
        draws = [Draw(**json.loads(line)) for line in lines]
        verdict = Verdict(Ending(record["ending"]), str(record["property"]), str(record["message"]))
        run = RecordedRun(int(record["seed"]), str(record["plan"]), draws, verdict, str(record["trace_hash"]))
    except OSError as problem:
        raise NotARun(f"{folder} is not the folder of a run: {problem.strerror} ({problem.filename})") from problem
    except (KeyError, TypeError, ValueError) as problem:
        raise NotARun(f"{folder} holds a run that cannot be read: {problem}") from problem
    if run.plan_name not in PLANS:
        raise NotARun(f"{folder} was played by a plan that is not known here: {run.plan_name}")
    if any(not 0 <= draw.taken < draw.options for draw in draws):
        raise NotARun(f"{folder}: a draw of its tape lies outside its options")
    return run


def _message(seconds: float, exchange: Exchange) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 6),
        "client": exchange.client,
        "session": exchange.session_id,
        "what": exchange.what,
        "xid": exchange.xid,
        "type": type(exchange.message).__name__,
        "message": _plain(exchange.message),
    }


def _plain(value: Any) -> Any:
    """A record as JSON: bytes as text, with escapes for what is none."""
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    names = getattr(type(value), "__slots__", ())
    return {"record": type(value).__name__} | {name: _plain(getattr(value, name)) for name in names}


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_lines(records))


def _lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        yield json.dumps(record, separators=(",", ":"), default=str) + "\n"


def _point_latest_at(folder: Path) -> None:
    link = folder.parent / "latest"
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
