"""Puts a recording into the page. What is drawn stands in `story.js`; the page needs nothing from anywhere else."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.recording import EntryLife, Event, Operation, Recording
from clickhouse_sim.simulation.story.path import path_to
from replica.log_entry import INSERT_TYPES, MERGE_TYPES, EntryType

_HERE = files("clickhouse_sim.simulation.story")
_LANE_MARKS = (
    *(mark for mark in Mark if mark.is_fault),
    Mark.RESTART,
    Mark.STOP,
    Mark.HEALED,
    Mark.SESSION_OPENED,
    Mark.CONFLICT,
    Mark.LOST,
    Mark.CLONED,
    Mark.LOG_WRITTEN,
    Mark.BROKEN,
)


def story_page(title: str, ending: str, failure: str, replay: str, recording: Recording) -> str:
    """The page. `failure` is the broken property with its evidence, empty if there is none; `replay` a command."""
    path = path_to(failure, recording.events) if failure else []
    data = {
        "end": recording.now(),
        "lanes": _lanes(recording),
        "marks": [_mark(event) for event in recording.events if event.mark in _LANE_MARKS],
    }
    values = {
        "title": html.escape(title),
        "ending": html.escape(ending),
        "class": "held" if not failure else "broken",
        "failure": html.escape(failure),
        "replay": html.escape(replay),
        "legend": "".join(f"<span><b>{html.escape(each.value)}</b> {each.meaning}</span>" for each in _LANE_MARKS),
        "path": "".join(map(_row, path)),
        "style": _text("story.css"),
        "script": _text("story.js"),
        "data": json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
    }
    page = _text("story.html")
    for name, value in values.items():
        page = page.replace(f"{{{{{name}}}}}", value)
    return page


def _text(name: str) -> str:
    return (_HERE / name).read_text("utf-8")


def _row(event: Event) -> str:
    cells = (f"{event.seconds:.3f}", event.mark.value, event.who, event.what)
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def _mark(event: Event) -> dict[str, Any]:
    return {
        "at": event.seconds,
        "mark": event.mark.value,
        "who": event.who,
        "what": event.what,
        "fault": event.mark.is_fault or event.mark is Mark.BROKEN,
    }


# --- lanes ---------------------------------------------------------------------------------------------------


def _lanes(recording: Recording) -> list[dict[str, Any]]:
    clients = sorted({operation.client for operation in recording.operations})
    replicas = sorted({life.replica for life in recording.entries} | {each.replica for each in recording.operations})
    lanes = [
        {
            "who": client,
            "name": client,
            "bars": [_operation(each) for each in recording.operations if each.client == client],
        }
        for client in clients
    ]
    for replica in replicas:
        lanes.append({"who": replica, "name": replica, "bars": _lives(replica, recording)})
        for pool in ("fetches", "merges", "common"):
            own = (life for life in recording.entries if life.replica == replica and _pool(life) == pool)
            lanes.append({"who": "", "name": f"{replica} {pool}", "bars": [_entry(life) for life in own]})
    return lanes


def _pool(life: EntryLife) -> str:
    if life.type is None:
        kind = EntryType(life.text.partition(" ")[0]) if life.text.partition(" ")[0] in set(EntryType) else None
    else:
        kind = life.type
    if kind in INSERT_TYPES:
        return "fetches"
    return "merges" if kind in MERGE_TYPES else "common"


def _operation(operation: Operation) -> dict[str, Any]:
    asked = " ".join(str(value) for value in operation.asked.values())
    return {
        "from": operation.began,
        "to": operation.ended,
        "kind": operation.outcome or "unknown",
        "says": f"#{operation.number} {operation.replica}: {asked}\n{operation.outcome}: {operation.answer}",
        "inner": [],
    }


def _entry(life: EntryLife) -> dict[str, Any]:
    reasons = "\n".join(f"{seconds:.1f}  {reason}" for seconds, reason in life.reasons[-5:])
    return {
        "from": life.pulled,
        "to": life.removed,
        "kind": "entry",
        "says": f"{life.znode} = {life.text}\n{len(life.attempts)} attempts\n{reasons}".rstrip(),
        "inner": life.attempts,
    }


def _lives(replica: str, recording: Recording) -> list[dict[str, Any]]:
    """When the replica lived."""
    bars: list[dict[str, Any]] = []
    for event in recording.events:
        if event.who != replica:
            continue
        if event.mark is Mark.RESTART:
            bars.append({"from": event.seconds, "to": None, "kind": "life", "says": f"{replica} lives", "inner": []})
        elif event.mark in (Mark.CRASH, Mark.STOP) and bars:
            bars[-1]["to"] = event.seconds
    return bars
