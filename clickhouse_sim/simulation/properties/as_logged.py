"""Where partitions are dropped: in the end there is what the log says, no more and no less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, InsertHistory
from clickhouse_sim.simulation.log_ledger import LogContradiction, LogLedger, Replay
from clickhouse_sim.simulation.partition_workload import PartitionHistory
from clickhouse_sim.simulation.properties.after_healing import BlockIds, Id, most_copies
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from replica.part_name import PartName
from replica.server import DEFAULT_DATABASE, Server

AS_LOGGED = "what is there is what the log says"


async def check_against_log(
    servers: Mapping[str, Server],
    log: LogLedger,
    ledgers: Iterable[DeduplicationLedger],
    history: InsertHistory,
    blocks: Sequence[BlockIds],
    forgotten: Mapping[Id, int],
    partitions: PartitionHistory,
) -> None:
    """Rows, acknowledged blocks and deduplication ids, all of them beside the log."""
    try:
        replay = log.replay()
    except LogContradiction as contradiction:
        raise PropertyBroken(AS_LOGGED, str(contradiction)) from contradiction
    for ledger in ledgers:
        _check_ids(ledger, replay, partitions.unfinished)
    _check_acknowledged(history, replay, most_copies(blocks, forgotten))
    for name, server in servers.items():
        await _check_rows(name, server, replay)


def _check_ids(ledger: DeduplicationLedger, replay: Replay, unfinished: Set[str]) -> None:
    """An id went before its time only if its part was dropped, or was to be by a statement of unknown end; and no id
    is left of a part that was dropped."""
    for name, text in ledger.too_early:
        part = PartName.parse(text)
        if replay.holds(part) and part.partition_id not in unfinished:
            raise PropertyBroken(
                AS_LOGGED,
                f"forgotten inside of the window: {ledger.kind}/{name}, and the rows of {part} are still there",
            )
    for name, text in ledger.parts().items():
        if not replay.holds(PartName.parse(text)):
            raise PropertyBroken(
                AS_LOGGED, f"{ledger.kind}/{name} would refuse rows that are not there: {text} was dropped"
            )


async def _check_rows(name: str, server: Server, replay: Replay) -> None:
    """The replica shows exactly the rows that the log leaves."""
    shown = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    if shown != replay.rows():
        less, more = sorted((replay.rows() - shown).items()), sorted((shown - replay.rows()).items())
        raise PropertyBroken(
            AS_LOGGED, f"{name} lacks the rows {less[:5]} of the log, and has {more[:5]} that it does not have"
        )


def _check_acknowledged(history: InsertHistory, replay: Replay, most: Mapping[tuple[int, ...], int]) -> None:
    """Each acknowledged block came in, whole, and not oftener than it may; so did each other, or not at all.

    With the rows of the log being there and no others, a block that came in is there until its part is dropped.
    """
    for keys, times in most.items():
        came_in = [replay.inserted[key] for key in keys]
        number = keys[0] // ROWS_PER_BLOCK
        if max(came_in) > times or (number in history.acknowledged and min(came_in) < 1):
            raise PropertyBroken(
                AS_LOGGED, f"the rows {keys} of block {number} came in {came_in} times, not 1 to {times}"
            )
    known = {key for keys in most for key in keys}
    if strangers := sorted(set(replay.inserted) - known):
        raise PropertyBroken(AS_LOGGED, f"rows that nobody inserted: {strangers[:5]}")
