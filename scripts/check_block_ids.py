"""Vectors of block ids, run through the product: each makes its table and its block, and the ids are compared.

    scripts/check-block-ids FILE.jsonl

Each line of the file is an INSERT that ClickHouse ran and the ids that it logged. `columns` and `rows` (or
`rows_formula`, a Python list) are the block; `blocks` cuts it; `views`, `source_id` and the token in `settings` go
into the ids; `partition_by` is over the block, or, where there are `views`, over what these make of it, of which
`partition_key` has the values. Each mismatch is printed; exit status 1 unless all match.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from clickhouse_sim.block_ids import ids_of_block
from replica.commands import ColumnDefinition, CreateTable
from replica.dedup.tokens import ViewStep
from replica.errors import ClickHouseError
from replica.partition_id import partition_id
from replica.schema.types import DataType, Kind, converted, parse_type
from replica.schema.types.containers import Tuple
from replica.table_structure import TableStructure

Vector = dict[str, Any]

_FORMULA_NAMES = {
    each.__name__: each
    for each in (
        *(abs, bool, chr, divmod, enumerate, float, hex, int, len, list, max, min, ord, pow, range, reversed, round),
        *(sorted, str, sum, tuple, zip),
    )
}
_ALLOWED = {"allow_nullable_key": "1", "allow_floating_point_partition_key": "1"}


def main(path: str) -> int:
    """The exit status."""
    matching = total = 0
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        vector = json.loads(line)
        total += 1
        problem = mismatch(vector)
        matching += not problem
        if problem:
            print(f"{vector.get('name', f'line {total}')}: {problem}")
    print(f"{matching} of {total} ids match")
    return 0 if matching == total else 1


def mismatch(vector: Vector) -> str:
    """What is different, "" if nothing is."""
    try:
        found = ids(vector)
    except (ClickHouseError, ValueError, OverflowError, TypeError, KeyError) as problem:
        return f"{type(problem).__name__}: {problem}"
    if sorted(set(found)) != sorted(set(vector["ids"])):
        return f"ClickHouse has {', '.join(vector['ids'])}; the model has {', '.join(found)}"
    return ""


def ids(vector: Vector) -> list[str]:
    """The ids of all blocks and partitions of the vector's INSERT, as the model has them."""
    return [found for piece in pieces(vector) for found in ids_of_piece(vector, piece)]


def pieces(vector: Vector) -> list[dict[str, Any]]:
    """Where the blocks of the INSERT begin and end, and their numbers."""
    return vector.get("blocks") or [{"begin": 0, "end": len(rows_of(vector)), "source_number": 0}]


def ids_of_piece(vector: Vector, piece: dict[str, Any]) -> list[str]:
    structure, block = structure_and_block(vector)
    rows = block.slice(piece["begin"], piece["end"] - piece["begin"])
    found = ids_of_block(
        structure,
        rows,
        piece["source_number"],
        vector["settings"].get("insert_deduplication_token", ""),
        vector.get("source_id", "empty"),
        list(views_of(vector, piece)),
    )
    given = partitions_of(vector, piece)
    if given is None:
        return [each.block_id for each in found]
    (hashed,) = found
    return [hashed.block_id.replace("all_", f"{partition}_", 1) for partition in given]


def views_of(vector: Vector, piece: dict[str, Any]) -> Iterator[ViewStep]:
    views = vector.get("views", [])
    for place, (view, number) in enumerate(views, start=1):
        yield ViewStep(view, piece.get("view_block", number) if place == len(views) else number)


def partitions_of(vector: Vector, piece: dict[str, Any]) -> list[str] | None:
    """The partitions of rows that a view made, by the values of their key; None where the block itself is stored."""
    if not vector.get("views") or not vector["partition_by"]:
        return None
    types = [parse_type(text) for text in vector["partition_key"]["types"]]
    keys = piece.get("partition_values") or vector["partition_key"]["values"]
    return [
        partition_id([(each, arrow(value, each)) for each, value in zip(types, key, strict=True)]) for key in keys
    ]


def structure_and_block(vector: Vector, order_by: str = "tuple()") -> tuple[TableStructure, pa.Table]:
    """The table whose columns are those of the inserted block, and the block."""
    rows = rows_of(vector)
    columns, arrays = [], []
    for place, (name, text) in enumerate(vector["columns"]):
        values = [row[place] for row in rows]
        data_type = as_pair(parse_type(text)) if has_leftovers(values) else parse_type(text)
        columns.append(ColumnDefinition(name, data_type.text, None))
        arrays.append(pa.array([given(value, data_type) for value in values], shape(data_type)))
    partition_by = "" if vector.get("views") else vector["partition_by"]
    definition = CreateTable(
        database="default",
        table="t",
        columns=tuple(columns),
        zookeeper_path="/t",
        replica_name="r",
        order_by=order_by,
        partition_by=partition_by,
        settings=_ALLOWED,
    )
    return TableStructure.from_definition(definition), pa.table(arrays, names=[column.name for column in columns])


def rows_of(vector: Vector) -> list[list[Any]]:
    if "rows" in vector:
        rows: list[list[Any]] = vector["rows"]
        return rows
    return list(eval(vector["rows_formula"], {"__builtins__": _FORMULA_NAMES}))


# --- values --------------------------------------------------------------------------------------------------


def shape(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values of a vector are given: floats as they are, all else as text, nested as it is."""
    data_type = data_type.value_type
    match data_type.kind:
        case Kind.FLOAT | Kind.BFLOAT:
            return data_type.arrow
        case Kind.ARRAY:
            return pa.large_list(shape(data_type.nested[0]))
        case Kind.MAP:
            return pa.map_(*map(shape, data_type.nested))
        case Kind.TUPLE | Kind.VARIANT:
            return pa.struct([(name, shape(each)) for name, each in named(data_type)])
    return pa.large_binary()


def given(value: Any, data_type: DataType) -> Any:
    """A value of a vector in that shape."""
    data_type = data_type.value_type
    if value is None and not is_pair(data_type):
        return None
    match data_type.kind:
        case Kind.FLOAT | Kind.BFLOAT:
            return number(value, data_type)
        case Kind.ARRAY:
            return [given(each, data_type.nested[0]) for each in value]
        case Kind.MAP:
            return [tuple(map(given, pair, data_type.nested)) for pair in value]
        case Kind.VARIANT:
            chosen = parse_type(value["type"])
            return {chosen.text: given(value["value"], chosen)}
        case Kind.TUPLE if is_pair(data_type):
            return pair(value, data_type)
        case Kind.TUPLE:
            return {name: given(each, own) for each, (name, own) in zip(value, named(data_type), strict=True)}
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return ("true" if value else "false").encode() if isinstance(value, bool) else str(value).encode()


def named(data_type: DataType) -> list[tuple[str, DataType]]:
    names = data_type.field_names if isinstance(data_type, Tuple) else [each.text for each in data_type.nested]
    return list(zip(names, data_type.nested, strict=True))


def number(value: Any, data_type: DataType) -> float:
    if not isinstance(value, dict):
        return float(value)
    bits = bytes.fromhex(value["bits"]).ljust(data_type.arrow.bit_width // 8, b"\0")
    found: float = struct.unpack(">f" if len(bits) == 4 else ">d", bits)[0]
    return found


def arrow(value: Any, data_type: DataType) -> pa.Array:
    return converted(pa.array([given(value, data_type)], shape(data_type)), data_type)


# --- NULLs over a value: what a client may send, and the model's doors make zero ------------------------------

# A Nullable is its values followed by a byte for each, 1 for NULL: the bytes of a tuple of the two.
_FLAG, _VALUE = "is null", "value under it"


def has_leftovers(value: Any) -> bool:
    if isinstance(value, dict):
        return "null_over" in value
    return isinstance(value, list) and any(map(has_leftovers, value))


def as_pair(data_type: DataType) -> DataType:
    """The type with each Nullable in it as a tuple of the same bytes."""
    text = data_type.text
    if data_type.nullable and text.startswith("Nullable("):
        return parse_type(f"Tuple(`{_VALUE}` {data_type.with_nullable(False)}, `{_FLAG}` UInt8)")
    match data_type.kind:
        case Kind.ARRAY:
            return parse_type(f"Array({as_pair(data_type.nested[0])})")
        case Kind.MAP:
            return parse_type(f"Map({data_type.nested[0]}, {as_pair(data_type.nested[1])})")
        case Kind.TUPLE:
            return parse_type(f"Tuple({', '.join(str(as_pair(each)) for each in data_type.nested)})")
    return data_type


def is_pair(data_type: DataType) -> bool:
    return isinstance(data_type, Tuple) and data_type.names == (_VALUE, _FLAG)


def pair(value: Any, data_type: DataType) -> dict[str, Any]:
    inner = data_type.nested[0]
    if value is None:
        return {_VALUE: zero(inner), _FLAG: b"1"}
    if isinstance(value, dict) and "null_over" in value:
        return {_VALUE: given(value["null_over"], inner), _FLAG: b"1"}
    return {_VALUE: given(value, inner), _FLAG: b"0"}


def zero(data_type: DataType) -> Any:
    return 0.0 if data_type.kind in (Kind.FLOAT, Kind.BFLOAT) else data_type.default_text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
