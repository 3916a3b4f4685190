"""What `chsim block-id` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from clickhouse_sim.block_ids import BlockId, ids_of_block
from clickhouse_sim.cli.narration import counted, narrate
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cli.run_insert import FileInsert, require_usable
from clickhouse_sim.cluster import znodes
from clickhouse_sim.formats.files import read_blocks
from clickhouse_sim.sql.statements import parse_statements
from coordinator.api import NoNode, Session
from replica.commands import CreateTable
from replica.errors import BadArguments, ClickHouseError
from replica.macros import expanded_where_known
from replica.table_structure import TableStructure
from replica.znodes import TableZnodes

# Ids of other schemes, under which older ClickHouse knows blocks.
_LEGACY = ("blocks", "async_blocks")


@dataclass(frozen=True, slots=True)
class Check:
    """Where ids are looked for: `path` instead of that in the DDL, whose macros are filled in otherwise."""

    address: str
    path: str | None
    macros: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Found:
    """What the znodes say of one id: the part that holds its rows, and when it got there (UTC)."""

    part: str
    since: datetime


def run_block_id(request: FileInsert, ddl: Path, check: Check | None, renderer: Renderer) -> None:
    """Tell the ids of the file's blocks, and where they are."""
    require_usable(request)
    definition = _definition(ddl)
    structure = TableStructure.from_definition(definition)
    root = None if check is None else _root(check, definition)
    ids = _ids(request, structure)
    if check is None or root is None:
        with renderer.records() as tell:
            for number, each in ids:
                tell(_values(number, each), _sentence(number, each))
        return
    _tell_checked(list(ids), check.address, root, renderer)


def _tell_checked(ids: list[tuple[int, BlockId]], address: str, root: str, renderer: Renderer) -> None:
    async def look(session: Session) -> tuple[list[_Found | None], dict[str, int]]:
        await _require_table(session, root)
        nodes = TableZnodes(root)
        return [await _found(session, nodes, each) for _, each in ids], await _legacy(session, root)

    found, legacy = znodes.with_session(address, look)
    with renderer.records() as tell:
        for (number, each), there in zip(ids, found, strict=True):
            tell(_values(number, each) | _whereabouts(there), f"{_sentence(number, each)}  {_fate(there)}")
    known = sum(there is not None for there in found)
    narrate(f"{known} of {counted(len(ids), 'id')} are in {root}/deduplication_hashes.")
    for folder, count in legacy.items():
        narrate(
            f"{root}/{folder} has {counted(count, 'id')} of an older ClickHouse, which hashed blocks otherwise: they "
            "look alike and mean something else, so whether these rows are among them is not known."
        )


def _ids(request: FileInsert, structure: TableStructure) -> Iterator[tuple[int, BlockId]]:
    try:
        for number, block in enumerate(read_blocks(request.file, structure.schema, request.reading)):
            for each in ids_of_block(structure, block, number, request.options.insert_deduplication_token):
                yield number, each
    except ClickHouseError as error:
        raise type(error)(f"{request.source}: {error.message}") from None


def _definition(ddl: Path) -> CreateTable:
    """The one CREATE TABLE that the file has."""
    try:
        statements = parse_statements(ddl.read_text(encoding="utf-8"))
    except UnicodeDecodeError as problem:
        raise click.UsageError(f"{ddl.name} is not UTF-8: {problem}") from None
    except ClickHouseError as error:
        raise type(error)(f"{ddl.name}: {error.message}") from None
    tables = [each for each in statements if isinstance(each, CreateTable)]
    if len(tables) != 1:
        raise BadArguments(f"{ddl.name} has {len(tables)} CREATE TABLE statements, and one is needed")
    return tables[0]


def _root(check: Check, definition: CreateTable) -> str:
    """The path of the table. Raises UsageError while a macro in it has no value."""
    known = {"database": definition.database, "table": definition.table}
    if definition.uuid:
        known["uuid"] = definition.uuid
    root = expanded_where_known(check.path or definition.zookeeper_path, known | dict(check.macros)).rstrip("/")
    if "{" in root:
        raise click.UsageError(f"{root} has a macro without a value: give --macro NAME=VALUE, or the --path.")
    if not root.startswith("/"):
        raise click.UsageError(f"{root!r} is no path of a znode: it starts with a slash.")
    return root


async def _require_table(session: Session, root: str) -> None:
    if await session.exists(f"{root}/metadata") is None:
        raise BadArguments(f"There is no replicated table at {root}")


async def _found(session: Session, nodes: TableZnodes, each: BlockId) -> _Found | None:
    try:
        data, stat = await session.get(nodes.deduplication_hash(each.block_id))
    except NoNode:
        return None
    since = datetime.fromtimestamp(stat.ctime // 1000, UTC).replace(tzinfo=None)
    return _Found(data.decode("utf-8", "backslashreplace"), since)


async def _legacy(session: Session, root: str) -> dict[str, int]:
    counts = {}
    for folder in _LEGACY:
        stat = await session.exists(f"{root}/{folder}")
        if stat is not None and stat.num_children:
            counts[folder] = stat.num_children
    return counts


def _values(number: int, each: BlockId) -> dict[str, Any]:
    return {"block": number, "rows": each.rows, "partition_id": each.partition_id, "block_id": each.block_id}


def _whereabouts(there: _Found | None) -> dict[str, Any]:
    if there is None:
        return {"known": False, "part": None, "since": None}
    return {"known": True, "part": there.part, "since": there.since}


def _sentence(number: int, each: BlockId) -> str:
    return f"block {number:>4} {each.rows:>10,} rows  {each.block_id}"


def _fate(there: _Found | None) -> str:
    return "not known" if there is None else f"as {there.part} since {there.since} UTC"
