"""What must hold when a history has healed, re-derived from znodes and parts, not from a replica's own opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, InsertHistory, Way, block_of
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from coordinator.api import Session
from replica.dedup.hashes import DeduplicationVersion, HashKind
from replica.dedup.info import DeduplicationInfo
from replica.errors import LogicalError, UnknownTable
from replica.insert.piece import Recipe, pieces_of
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.schema import conform
from replica.server import DEFAULT_DATABASE, Server
from replica.storage.part_codec import ArrowCodec
from replica.table_structure import TableStructure
from replica.znodes import TableZnodes

ONCE = "every acknowledged block is there exactly once"
LOSS = "what is lost for ever is told"
WINDOW = "an id stays as long as the window holds it"
NOT_WITHOUT_ROWS = "no id is there without its rows"
EQUAL = "replicas have equal parts"
ON_DISK = "what is registered is on the disk"
QUEUE = "virtual parts are current parts and the queue"
SETTINGS = "what was altered and reset is as it was created"
NOTHING_LEFT = "queues drain and locks go"


Id = tuple[HashKind, str]
"""A deduplication id: its generation, which is its directory, and its name there."""


@dataclass(frozen=True, slots=True)
class BlockIds:
    """The ids by which one block under one token can be known in one partition, and its keys there."""

    number: int
    partition_id: str
    keys: tuple[int, ...]
    ids: tuple[Id, ...]


def ids_of_blocks(structure: TableStructure, history: InsertHistory) -> Iterator[BlockIds]:
    """Of everything that was tried, in every generation of ids."""
    both = DeduplicationVersion.COMPATIBLE_DOUBLE_HASHES
    for number, tokens in sorted(history.tried.items()):
        block, together = block_of(number), history.ways[number] is Way.TOGETHER
        recipe = Recipe.of_table(structure, ArrowCodec())
        for token in tokens:
            listed = conform(block, structure.schema)
            info = DeduplicationInfo(listed, structure.schema, [token], both, is_async=together)
            for piece, (partition_id, rows) in zip(
                pieces_of(recipe, info, deduplicated=True), structure.partition_key.split(block), strict=True
            ):
                ids = tuple((each.kind, each.block_id) for each in piece.hashes)
                yield BlockIds(number, partition_id, tuple(rows.column("k").to_pylist()), ids)


async def check_every_acknowledged_block_once(
    name: str,
    server: Server,
    history: InsertHistory,
    blocks: Sequence[BlockIds],
    forgotten: Mapping[Id, int],
    gone: Set[int],
) -> int:
    """Each acknowledged block is on the replica exactly once, whole; each other at most once.

    It may be there once for each token that it was tried under (OPTIMIZE … DEDUPLICATE leaves one of equal rows), and
    as many times more as its ids were forgotten. Only rows whose keys are in `gone` may be missing; how many of those
    are.
    """
    missing = 0
    copies = Counter((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    for keys, times in most_copies(blocks, forgotten).items():
        found = [copies.pop(key, 0) for key in keys]
        number = keys[0] // ROWS_PER_BLOCK
        absent = {key for key, count in zip(keys, found, strict=True) if not count}
        is_due = number in history.acknowledged
        missing += len(absent) if is_due else 0
        if max(found) > times or (is_due and not gone >= absent):
            raise PropertyBroken(
                ONCE, f"{name}: the rows {keys} of block {number} are there {found} times, not 1 to {times}"
            )
    if copies:
        raise PropertyBroken(ONCE, f"{name}: rows that nobody inserted: {sorted(copies)[:5]}")
    return missing


def most_copies(blocks: Sequence[BlockIds], forgotten: Mapping[Id, int]) -> Mapping[tuple[int, ...], int]:
    """How often rows, by their keys, can have come in: once a token, once more each time an id is forgotten."""
    most: Counter[tuple[int, ...]] = Counter()
    for each in blocks:
        most[each.keys] += 1 + sum(forgotten.get(known, 0) for known in each.ids)
    return most


async def check_loss_is_told(session: Session, table: TableZnodes, missing: int, gone: Set[int]) -> None:
    """The table counts lost parts if acknowledged rows are missing, and only if some were destroyed everywhere."""
    value, _ = await session.get(table.lost_part_count)
    lost = int(value or b"0")
    if missing and not lost:
        raise PropertyBroken(LOSS, f"{missing} acknowledged rows are missing, but lost_part_count is 0")
    if lost and not gone:
        raise PropertyBroken(LOSS, f"{lost} parts were given up as lost, but no row was destroyed everywhere")


async def check_ids_have_their_rows(
    session: Session, table: TableZnodes, name: str, server: Server, blocks: Sequence[BlockIds]
) -> None:
    """No id is there without its rows, which it would refuse for ever, and none that no block has.

    The ids of parts that RESTORE REPLICA attached stand for no block.
    """
    stored = set((await server.scan(DEFAULT_DATABASE, "t")).column("k").to_pylist())
    keys = {known: each.keys for each in blocks for known in each.ids}
    for kind in HashKind:
        for block_id in await session.children(table.deduplication_directory(kind)):
            if "_restored_" in block_id:
                continue
            if (kind, block_id) not in keys:
                raise PropertyBroken(NOT_WITHOUT_ROWS, f"{kind}/{block_id} is the id of no block")
            if not stored.issuperset(keys[kind, block_id]):
                missing = f"{name}: {kind}/{block_id} is there, and its rows {keys[kind, block_id]} are not"
                raise PropertyBroken(NOT_WITHOUT_ROWS, missing)


def check_forgotten(ledger: DeduplicationLedger, blocks: Sequence[BlockIds], gone: Set[int]) -> None:
    """Every deduplication id stayed as long as the window held it, but those of blocks that are gone."""
    excused = {known for each in blocks if gone >= set(each.keys) for known in each.ids}
    if too_early := [name for name, _ in ledger.too_early if (ledger.kind, name) not in excused]:
        raise PropertyBroken(WINDOW, f"forgotten inside of the window of {ledger.kind}: {too_early[:5]}")


async def check_equal_parts(session: Session, table: TableZnodes) -> None:
    """All replicas have the same maximal parts, and parts of one name have one content wherever they are."""
    contents: dict[str, bytes] = {}
    maximal: dict[str, list[PartName]] = {}
    for replica in await session.children(table.replicas):
        names = await session.children(table.replica(replica).parts)
        maximal[replica] = list(PartSet(map(PartName.parse, names)))
        found = await session.get_many([table.replica(replica).part(name) for name in names])
        for name, answer in zip(names, found, strict=True):
            if answer is not None and contents.setdefault(name, answer[0]) != answer[0]:
                raise PropertyBroken(EQUAL, f"part {name} of {replica} has other content than elsewhere")
    (first, parts), *others = maximal.items()
    for replica, other_parts in others:
        if other_parts != parts:
            differing = sorted(set(parts) ^ set(other_parts))
            raise PropertyBroken(
                EQUAL, f"{first} and {replica} have other parts: {', '.join(map(str, differing[:5]))}"
            )


async def check_parts_on_disk(session: Session, name: str, server: Server, table: TableZnodes) -> None:
    """A replica has what it has registered; what it shows is registered. Only outdated parts may lose their znode."""
    on_disk = [row for row in (await server.scan("system", "parts")).to_pylist() if row["table"] == "t"]
    registered = await session.children(table.replica(name).parts)
    if missing := sorted(set(registered) - {row["name"] for row in on_disk}):
        raise PropertyBroken(ON_DISK, f"{name} has registered parts that it does not have: {missing[:5]}")
    if unregistered := sorted({row["name"] for row in on_disk if row["active"]} - set(registered)):
        raise PropertyBroken(ON_DISK, f"{name} shows parts that it has not registered: {unregistered[:5]}")


def check_queue(name: str, server: Server) -> None:
    """`virtual_parts = current_parts + queue`, and no two active parts overlap."""
    try:
        state = server.replicated_table(DEFAULT_DATABASE, "t").state
    except UnknownTable:
        return  # not made yet, or not loaded after a start
    try:
        state.queue.check_invariant()
        PartSet(part.name for part in state.store.active_parts())
    except LogicalError as problem:
        raise PropertyBroken(QUEUE, f"{name}: {problem}") from problem


def check_settings(name: str, server: Server, expected: Mapping[str, str]) -> None:
    """A replica has the settings that it was created with, once every alteration was taken back."""
    found = server.table(DEFAULT_DATABASE, "t").definition.settings
    if found != expected:
        raise PropertyBroken(SETTINGS, f"{name} has the settings {dict(found)}, not {dict(expected)}")


async def check_nothing_left_over(session: Session, table: TableZnodes) -> None:
    """No queue entry and no lock of a block number remains."""
    for replica in await session.children(table.replicas):
        if waiting := await session.children(table.replica(replica).queue):
            raise PropertyBroken(NOTHING_LEFT, f"{replica} still has {waiting[:5]} in its queue")
    for partition in await session.children(table.block_numbers):
        if locks := await session.children(table.partition(partition)):
            raise PropertyBroken(NOTHING_LEFT, f"partition {partition} still has the locks {locks[:5]}")
