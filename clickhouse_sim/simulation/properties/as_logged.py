"""Where partitions are dropped: in the end there is what the log says, no more and no less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.insert_workload import InsertHistory, block_of
from clickhouse_sim.simulation.log_ledger import LogContradiction, LogLedger, Replay
from clickhouse_sim.simulation.partition_workload import PartitionHistory
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from coordinator.api import Session
from replica.dedup.block_id import block_id, insert_extension
from replica.part_name import PartName
from replica.server import DEFAULT_DATABASE, Server
from replica.table_structure import TableStructure

AS_LOGGED = "what is there is what the log says"


async def check_against_log(
    session: Session,
    servers: Mapping[str, Server],
    log: LogLedger,
    ledger: DeduplicationLedger,
    history: InsertHistory,
    partitions: PartitionHistory,
) -> None:
    """Rows, acknowledged blocks and deduplication ids, all of them beside the log."""
    await log.look(session)
    try:
        replay = log.replay()
    except LogContradiction as contradiction:
        raise PropertyBroken(AS_LOGGED, str(contradiction)) from contradiction
    _check_ids(ledger, replay, partitions.unfinished)
    _check_acknowledged(log.structure, history, replay, ledger.forgotten)
    for name, server in servers.items():
        await _check_rows(name, server, replay)


def _check_ids(ledger: DeduplicationLedger, replay: Replay, unfinished: set[str]) -> None:
    """An id went before its time only if its part was dropped, or was to be by a statement of unknown end; and no id
    is left of a part that was dropped."""
    for name, text in ledger.too_early:
        part = PartName.parse(text)
        if replay.holds(part) and part.partition_id not in unfinished:
            raise PropertyBroken(
                AS_LOGGED, f"forgotten inside of the window: {name}, and the rows of {part} are still there"
            )
    for name, text in ledger.parts().items():
        if not replay.holds(PartName.parse(text)):
            raise PropertyBroken(AS_LOGGED, f"the id {name} would refuse rows that are not there: {text} was dropped")


async def _check_rows(name: str, server: Server, replay: Replay) -> None:
    """The replica shows exactly the rows that the log leaves."""
    shown = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    if shown != replay.rows():
        less, more = sorted((replay.rows() - shown).items()), sorted((shown - replay.rows()).items())
        raise PropertyBroken(
            AS_LOGGED, f"{name} lacks the rows {less[:5]} of the log, and has {more[:5]} that it does not have"
        )


def _check_acknowledged(
    structure: TableStructure, history: InsertHistory, replay: Replay, forgotten: Mapping[str, int]
) -> None:
    """Each acknowledged block came in, and once only unless its id was forgotten; so did each other, or not at all.

    With the rows of the log being there and no others, a block that came in is there until its part is dropped.
    """
    for number in sorted(history.tried):
        extension = insert_extension(block_of(number), structure.schema, 0)
        for partition_id, _ in structure.partition_key.split(block_of(number)):
            id = block_id(partition_id, extension)
            times, most = replay.inserted[id], 1 + forgotten.get(id, 0)
            if times > most or (number in history.acknowledged and times < 1):
                raise PropertyBroken(
                    AS_LOGGED, f"block {number} came into partition {partition_id} {times} times, not 1 to {most}"
                )
