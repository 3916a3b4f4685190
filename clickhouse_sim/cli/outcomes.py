"""What became of inserted blocks, as `sql` and `insert` tell it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from clickhouse_sim.cli.render import Tell
from replica.commands import BlockOutcome, InsertStatus, PartOutcome
from replica.errors import Aborted, ClickHouseError, NetworkError, UnknownStatusOfInsert


def show_outcome(outcome: BlockOutcome, tell: Tell) -> None:
    """One line a block."""
    values = {
        "block": outcome.source_number,
        "rows": outcome.rows,
        "status": outcome.status.value,
        "parts": [{**asdict(part), "status": part.status.value} for part in outcome.parts],
    }
    fates = ", ".join(_fate(part) for part in outcome.parts)
    tell(values, f"block {outcome.source_number:>4}  {outcome.rows:>9,} rows  {fates}")


UNANSWERED = (NetworkError, Aborted, KeyboardInterrupt)
"""How an insert ends while a block waits for its answer: the server dies or stops, or nobody waits any longer."""


@contextmanager
def told_if_unanswered(number: int, rows: int, tell: Tell) -> Iterator[None]:
    """While the block waits for its answer: if none comes, or nobody waits any longer, its status is *unknown*."""
    try:
        yield
    except UNANSWERED as end:
        why = end.message if isinstance(end, ClickHouseError) else "interrupted before it was answered"
        values = {"block": number, "rows": rows, "status": InsertStatus.UNKNOWN.value, "parts": []}
        tell(values, f"block {number:>4}  {rows:>9,} rows  {InsertStatus.UNKNOWN.value}: {why}")
        raise


def refuse_unstored(outcome: BlockOutcome) -> None:
    """Raises UnknownStatusOfInsert or Aborted for a block that is not known to be in the table whole."""
    bad = [part for part in outcome.parts if part.status in (InsertStatus.NOT_STORED, InsertStatus.UNKNOWN)]
    if bad:
        kind = UnknownStatusOfInsert if outcome.status is InsertStatus.UNKNOWN else Aborted
        raise kind(
            f"block {outcome.source_number} is {outcome.status.value} in partition"
            f" {', '.join(part.partition_id for part in bad)}: {bad[0].error};"
            " to run the same insert again is safe"
        )


def _fate(part: PartOutcome) -> str:
    match part.status:
        case InsertStatus.STORED:
            return part.part_name
        case InsertStatus.DUPLICATE:
            return f"duplicate of {part.part_name or 'a part that is gone'}"
    return f"{part.status.value}: {part.error}"
