"""What became of inserted blocks, as `sql` and `insert` tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cli.render import Tell
from replica.commands import BlockOutcome, InsertOptions, InsertStatus, PartOutcome, ViewOutcome
from replica.errors import Aborted, ClickHouseError, NetworkError, UnknownStatusOfInsert
from replica.insert.deduplication_mode import deduplication_of

_USUAL = str(deduplication_of(InsertOptions()))


def show_outcome(outcome: BlockOutcome, tell: Tell) -> None:
    """One line a block."""
    values = {
        "block": outcome.source_number,
        "rows": outcome.rows,
        "status": outcome.status.value,
        "deduplication": outcome.deduplication,
        "data_hash_computations": outcome.data_hash_computations,
        "parts": _records(outcome.parts),
        "views": [{**asdict(view), "parts": _records(view.parts)} for view in outcome.views],
    }
    fates = ", ".join(map(_fate, outcome.parts))
    behind = "".join(f"; {_name(view)}: {_fate_behind(view)}" for view in outcome.views)
    tell(values, f"block {outcome.source_number:>4}  {outcome.rows:>9,} rows  {fates}{behind}")


def _records(parts: Sequence[PartOutcome]) -> list[dict[str, Any]]:
    return [{**asdict(part), "status": part.status.value} for part in parts]


def narrate_deduplication(outcome: BlockOutcome) -> None:
    """Say what an operator would not expect: which setting decided, and what the parts warn of."""
    if outcome.deduplication not in ("", _USUAL):
        narrate(f"Deduplication was {outcome.deduplication}.")
    others = {view.deduplication: view for view in outcome.views if view.deduplication != outcome.deduplication}
    for view in others.values():
        narrate(f"Behind {_name(view)} deduplication was {view.deduplication}.")
    for warning in {part.warning: None for part in outcome.parts if part.warning}:
        narrate(f"Warning: {warning}.")


UNANSWERED = (NetworkError, Aborted, KeyboardInterrupt)
"""How an insert ends while a block waits for its answer: the server dies or stops, or nobody waits any longer."""


@contextmanager
def told_if_unanswered(number: int, rows: int, tell: Tell) -> Iterator[None]:
    """While the block waits for its answer: if none comes, or nobody waits any longer, its status is *unknown*."""
    try:
        yield
    except UNANSWERED as end:
        why = end.message if isinstance(end, ClickHouseError) else "interrupted before it was answered"
        values = {
            "block": number,
            "rows": rows,
            "status": InsertStatus.UNKNOWN.value,
            "deduplication": "",
            "data_hash_computations": 0,
            "parts": [],
            "views": [],
        }
        tell(values, f"block {number:>4}  {rows:>9,} rows  {InsertStatus.UNKNOWN.value}: {why}")
        raise


def refuse_unstored(outcome: BlockOutcome) -> None:
    """Raises UnknownStatusOfInsert or Aborted for a block that is not known to be everywhere whole."""
    kind = UnknownStatusOfInsert if outcome.status is InsertStatus.UNKNOWN else Aborted
    bad = _bad(outcome.parts)
    if bad:
        raise kind(
            f"block {outcome.source_number} is {outcome.status.value} in partition"
            f" {', '.join(part.partition_id for part in bad)}: {bad[0].error};"
            " to run the same insert again is safe"
        )
    for view in outcome.views:
        error = view.error or ", ".join(part.error for part in _bad(view.parts)[:1])
        if error:
            raise kind(
                f"block {outcome.source_number} is in the table, but not behind {_name(view)}: {error};"
                f" to run the same insert again is safe while deduplication is on (it was {view.deduplication})"
            )


def _bad(parts: Sequence[PartOutcome]) -> list[PartOutcome]:
    return [part for part in parts if part.status in (InsertStatus.NOT_STORED, InsertStatus.UNKNOWN)]


def _name(view: ViewOutcome) -> str:
    return f"{' > '.join(view.views)} > {view.table}"


def _fate_behind(view: ViewOutcome) -> str:
    return view.error or ", ".join(map(_fate, view.parts)) or "no rows"


def _fate(part: PartOutcome) -> str:
    match part.status:
        case InsertStatus.STORED if part.removed_rows:
            of = f" of {part.duplicate_of}" if part.duplicate_of else ""
            return f"{part.part_name} without {part.removed_rows} duplicate rows{of}"
        case InsertStatus.STORED:
            return part.part_name
        case InsertStatus.DUPLICATE:
            return f"duplicate of {part.part_name or 'a part that is gone'}"
    return f"{part.status.value}: {part.error}"
