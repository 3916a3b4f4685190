"""Partition ids against the ones that ClickHouse 26.9 logged, and blocks cut into partitions."""

from __future__ import annotations

import datetime
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import BadArguments, ClickHouseError, IllegalColumn
from replica.expression import compile_partition_key
from replica.partition import PartitionKey
from replica.partition_id import check_partition_id, partition_id
from replica.schema import Column, DataType, TableSchema, conform, parse_type
from replica.schema.memory import dtype, from_stored, is_numeric

VECTORS = [
    json.loads(line) for line in (Path(__file__).parent.parent / "data" / "block_ids.jsonl").read_text().splitlines()
]


def schema_of(**columns: str) -> TableSchema:
    return TableSchema(tuple(Column(name, parse_type(text)) for name, text in columns.items()))


def is_covered(vector: dict[str, Any]) -> bool:
    """Whether the model has its types, and the key is over the columns that were inserted."""
    try:
        schema_of(**dict(vector["columns"]))
    except ClickHouseError:
        return False
    return bool(vector["partition_by"]) and "ddl" not in vector


COVERED = [vector for vector in VECTORS if is_covered(vector)]


def test_the_vectors_with_a_partition_key_are_covered() -> None:
    partitioned = [vector for vector in VECTORS if vector["partition_by"]]
    print(f"{len(COVERED)} of {len(partitioned)} vectors with PARTITION BY covered")
    assert len(COVERED) >= 15


@pytest.mark.parametrize("vector", COVERED, ids=lambda vector: vector["name"])
def test_the_partitions_of_a_vector(vector: dict[str, Any]) -> None:
    schema = schema_of(**dict(vector["columns"]))
    rows = vector["rows"] if "rows" in vector else eval(vector["rows_formula"])
    arrays = {name: pa.array([row[index] for row in rows]) for index, name in enumerate(schema.names)}
    block = conform(pa.table(arrays), schema)
    key = PartitionKey(
        compile_partition_key(
            vector["partition_by"], schema, allow_nullable_key=True, allow_floating_point_partition_key=True
        )
    )
    if "partition_key" in vector:
        assert [each.type.text for each in key.key.expressions] == vector["partition_key"]["types"]
    cuts = vector.get("blocks", [{"begin": 0, "end": len(block)}])
    found = [
        partition
        for piece in cuts
        for partition, _ in key.split(block.slice(piece["begin"], piece["end"] - piece["begin"]))
    ]
    assert found == [logged.split("_")[0] for logged in vector["ids"]]


def element(text: str, value: Any) -> tuple[DataType, pa.Array]:
    """One value in memory form."""
    data_type = parse_type(text)
    if is_numeric(data_type) and value is not None:
        return data_type, from_stored(np.array([value], dtype(data_type)), None, data_type)
    return data_type, pa.array([value], data_type.arrow)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "all"),
        ([("Int8", -5), ("Int8", -6)], "-5--6"),
        ([("UInt64", 2**64 - 1)], "18446744073709551615"),
        ([("Date", 19782)], "20240229"),
        ([("Date", 0)], "19700101"),
        ([("DateTime", 1709168523)], "1709168523"),
        ([("Bool", 1)], "1"),
        ([("Nullable(UInt8)", 5)], "5"),
        ([("String", b"a")], "51fbadfb0deeea70ceafbd3c7c8aef25"),
        ([("String", b"")], "f64abffc6c96f8ef72c783f1b9426e19"),
        ([("Nullable(UInt8)", None)], "2b16b490a87466b6a6d34fd9027f3c3d"),
        ([("Float64", 1.5)], "11876ff8640afac37203e8651c527cea"),
        ([("UInt8", 5), ("String", b"x")], "91d204915e76aaeb92a870ebbf839ec8"),
    ],
)
def test_partition_ids(values: list[tuple[str, Any]], expected: str) -> None:
    assert partition_id([element(text, value) for text, value in values]) == expected


def test_the_key_is_stored_as_clickhouse_stores_it() -> None:
    schema = schema_of(**{"id": "UInt32", "odd name": "String"})
    assert PartitionKey.compile("(id % 4, `odd name`)", schema).text == "id % 4, `odd name`"
    assert PartitionKey.compile("", schema).text == PartitionKey.compile("tuple()", schema).text == ""


def test_a_signed_remainder_wraps_as_it_once_did() -> None:
    key = PartitionKey.compile("k % 255", schema_of(k="Int64"))
    block = pa.table({"k": pa.array([-255, -200, -1, 5], pa.int64())})
    assert [partition for partition, _ in key.split(block)] == ["0", "56", "-1", "5"]


def test_keys_that_clickhouse_refuses() -> None:
    schema = schema_of(k="UInt8", n="Nullable(UInt8)", f="Float32")
    with pytest.raises(IllegalColumn, match="nullable"):
        PartitionKey.compile("(k, n)", schema)
    with pytest.raises(BadArguments, match="Floating point partition key"):
        PartitionKey.compile("f", schema)
    with pytest.raises(BadArguments, match="Floating point partition key"):
        PartitionKey.compile("k / 2", schema)
    with pytest.raises(IllegalColumn, match="constants"):
        PartitionKey.compile("(k, 1)", schema)


@pytest.mark.parametrize("text", ["", "a/b", "..", "a_b", "ä", "202401\n", "a b"])
def test_what_cannot_be_a_partition_id_is_refused(text: str) -> None:
    with pytest.raises(BadArguments, match="not a partition id"):
        check_partition_id(text)


keys = st.tuples(st.integers(-3, 3), st.none() | st.sampled_from([b"", b"a", b"b"]))


@given(st.lists(keys, max_size=30))
def test_a_split_keeps_every_row_in_order(rows: list[tuple[int, bytes | None]]) -> None:
    schema = schema_of(k="Int8", s="Nullable(String)", row="UInt32")
    block = pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.int8()),
            "s": pa.array([s for _, s in rows], pa.large_binary()),
            "row": pa.array(range(len(rows)), pa.uint32()),
        }
    )
    pieces = PartitionKey(compile_partition_key("(k, s)", schema, allow_nullable_key=True)).split(block)
    expected: dict[str, list[int]] = {}
    for number, (k, s) in enumerate(rows):
        expected.setdefault(partition_id([element("Int8", k), element("String", s)]), []).append(number)
    assert [(each, piece.column("row").to_pylist()) for each, piece in pieces] == list(expected.items())
    assert all(piece.schema == block.schema for _, piece in pieces)
    assert all(check_partition_id(each) == each for each, _ in pieces)


def test_floats_are_told_apart_by_their_bits() -> None:
    schema = schema_of(f="Float32")
    key = PartitionKey(compile_partition_key("f", schema, allow_floating_point_partition_key=True))
    block = pa.table({"f": pa.array([0.0, -0.0, 0.0], pa.float32())})
    (first, some), (second, other) = key.split(block)
    assert (some.num_rows, other.num_rows) == (2, 1)
    assert first == partition_id([element("Float64", struct.unpack("<d", bytes(8))[0])])
    assert first != second


def test_months_in_the_zone_of_the_column() -> None:
    key = PartitionKey.compile("toYYYYMM(t)", schema_of(t="DateTime('Europe/Berlin')"))
    late = datetime.datetime(2020, 1, 31, 23, 30, tzinfo=datetime.UTC)
    block = pa.table({"t": pa.array([late], pa.timestamp("s", "UTC"))})
    assert [partition for partition, _ in key.split(block)] == ["202002"]


def test_an_empty_block_has_no_partitions() -> None:
    schema = schema_of(k="UInt8")
    empty = schema.arrow_schema.empty_table()
    assert PartitionKey.compile("k", schema).split(empty) == PartitionKey.compile("", schema).split(empty) == []
