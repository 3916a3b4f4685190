"""Block ids against the ones that ClickHouse 26.9 logged, and the column stream over every Arrow representation."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.dedup import block_id as block_id_module
from replica.dedup.block_id import block_id, data_hash, insert_extension
from replica.dedup.column_stream import column_stream
from replica.dedup.tokens import ViewStep, extension
from replica.errors import UnknownType
from replica.schema import Column, DataType, Kind, TableSchema, conform, parse_type

VECTORS = [
    json.loads(line) for line in (Path(__file__).parent.parent / "data" / "block_ids.jsonl").read_text().splitlines()
]


def lacking_types(vector: dict[str, Any]) -> list[str]:
    """The types of its columns that the model does not have."""
    lacking = []
    for _, text in vector["columns"]:
        try:
            parse_type(text)
        except UnknownType:
            lacking.append(text)
    return lacking


COVERED = [vector for vector in VECTORS if not lacking_types(vector)]


def value_of(given: Any, data_type: DataType) -> Any:
    """A value of the vector file as Python has it."""
    if given is None:
        return None
    if isinstance(given, dict) and "bits" in given:
        return struct.unpack(">f" if data_type.width == 4 else ">d", bytes.fromhex(given["bits"]))[0]
    if isinstance(given, dict) and "hex" in given:
        return bytes.fromhex(given["hex"])
    if data_type.is_integer:
        return int(given)
    if data_type.kind is Kind.FLOAT:
        return float(given)
    return given


def block_of(vector: dict[str, Any]) -> tuple[pa.Table, TableSchema]:
    schema = TableSchema(tuple(Column(name, parse_type(text)) for name, text in vector["columns"]))
    rows = vector["rows"] if "rows" in vector else eval(vector["rows_formula"])
    arrays = {}
    for index, column in enumerate(schema.columns):
        values = [value_of(row[index], column.type) for row in rows]
        arrow = column.type.arrow if column.type.is_number else None
        arrays[column.name] = pa.array(values, arrow) if values else pa.array([], column.type.arrow)
    return conform(pa.table(arrays), schema), schema


def test_every_vector_whose_types_the_model_has_is_covered() -> None:
    skipped = {vector["name"]: lacking_types(vector) for vector in VECTORS if lacking_types(vector)}
    print(f"{len(COVERED)} of {len(VECTORS)} vectors covered; skipped for their types: {skipped}")
    assert len(COVERED) + len(skipped) == len(VECTORS)
    assert len(COVERED) >= 57


@pytest.mark.parametrize("vector", COVERED, ids=lambda vector: vector["name"])
def test_the_ids_of_a_vector(vector: dict[str, Any]) -> None:
    block, schema = block_of(vector)
    if "stream_hex" in vector:
        buffers = (
            buffer
            for name in block.column_names
            for buffer in column_stream(block.column(name), schema.column(name).type)
        )
        assert b"".join(buffer.tobytes() for buffer in buffers).hex() == vector["stream_hex"]
    if "data_hash" in vector:
        assert "{}_{}".format(*data_hash(block, schema)) == vector["data_hash"]
    extensions = [
        insert_extension(
            block.slice(piece["begin"], piece["end"] - piece["begin"]),
            schema,
            piece["source_number"],
            token=vector["settings"].get("insert_deduplication_token", ""),
            source_id=vector.get("source_id", "empty"),
            views=[
                ViewStep(view, piece.get("view_block", number) if index == len(vector["views"]) - 1 else number)
                for index, (view, number) in enumerate(vector.get("views", []))
            ],
        )
        for piece in vector.get("blocks", [{"begin": 0, "end": len(block), "source_number": 0}])
    ]
    assert set(extensions) == set(vector["extensions"])
    for text, logged in zip(vector["extensions"], vector["ids"], strict=True):
        assert block_id(logged.split("_")[0], text) == logged


def test_with_a_token_the_data_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("hashed")

    monkeypatch.setattr(block_id_module, "data_hash", refuse)
    schema = TableSchema((Column("k", parse_type("UInt8")),))
    block = pa.table({"k": pa.array([1], pa.uint8())})
    assert insert_extension(block, schema, 3, token="a:b") == "user-token-a:b:source-id-empty:source-number-3"
    with pytest.raises(AssertionError):
        insert_extension(block, schema, 3)


def test_views_stand_in_the_order_of_the_path() -> None:
    path = [ViewStep("d.mv", 1), ViewStep("d.mv2")]
    assert extension("1_2", 0, views=path) == (
        "1_2:source-id-empty:source-number-0:view-id-d.mv:view-block-1:view-id-d.mv2:view-block-0"
    )


# --- the stream does not know how Arrow holds the values -------------------------------------------------------


def stream_of(values: pa.Array | pa.ChunkedArray, text: str) -> bytes:
    return b"".join(buffer.tobytes() for buffer in column_stream(values, parse_type(text)))


def expected_strings(values: list[bytes | None], nullable: bool) -> bytes:
    present = [value or b"" for value in values]
    ends = [sum(map(len, present[: index + 1])) for index in range(len(present))]
    nulls = bytes(value is None for value in values) if nullable else b""
    return b"".join(present) + struct.pack(f"<{len(ends)}Q", *ends) + nulls


optional_strings = st.lists(st.none() | st.binary(max_size=5), max_size=12)
cuts = st.lists(st.integers(0, 12), max_size=3)


def cut(array: pa.Array, places: list[int]) -> pa.ChunkedArray:
    """The array in chunks that are slices of it, empty ones among them."""
    edges = [0, *sorted(min(place, len(array)) for place in places), len(array)]
    return pa.chunked_array([array.slice(low, high - low) for low, high in itertools.pairwise(edges)], array.type)


@given(optional_strings, cuts)
def test_strings_in_any_representation(values: list[bytes | None], places: list[int]) -> None:
    expected = expected_strings(values, nullable=True)
    padded = pa.array([b"before", None, *values, b"after"], pa.large_binary()).slice(2, len(values))
    assert stream_of(padded, "Nullable(String)") == expected
    assert stream_of(cut(padded, places), "Nullable(String)") == expected
    assert stream_of(cut(padded.cast(pa.binary()), places), "Nullable(String)") == expected
    assert stream_of(cut(padded.dictionary_encode(), places), "Nullable(String)") == expected
    assert stream_of(cut(padded.cast(pa.binary_view()), places), "Nullable(String)") == expected
    present = [value or b"" for value in values]
    assert stream_of(cut(pa.array(present, pa.large_binary()), places), "String") == expected_strings(present, False)


@given(st.lists(st.none() | st.integers(0, 2**32 - 1), max_size=12), cuts, st.sampled_from(["UInt32", "DateTime"]))
def test_numbers_in_any_representation(values: list[int | None], places: list[int], text: str) -> None:
    data_type = parse_type(f"Nullable({text})")
    expected = struct.pack(f"<{len(values)}I", *(value or 0 for value in values))
    expected += bytes(value is None for value in values)
    padded = pa.array([7, None, *values, 9], pa.int64()).cast(data_type.arrow).slice(2, len(values))
    assert stream_of(padded, data_type.text) == expected
    assert stream_of(cut(padded, places), data_type.text) == expected
    assert stream_of(cut(padded.dictionary_encode(), places), data_type.text) == expected
    if text == "UInt32":
        assert stream_of(pc.run_end_encode(padded), data_type.text) == expected


def test_what_lies_under_a_null_is_not_hashed() -> None:
    validity = pa.py_buffer(bytes([0b101]))
    numbers = pa.Array.from_buffers(pa.uint8(), 3, [validity, pa.py_buffer(bytes([1, 99, 3]))])
    assert stream_of(numbers, "Nullable(UInt8)") == bytes([1, 0, 3, 0, 1, 0])
    offsets = pa.py_buffer(struct.pack("<4q", 0, 1, 6, 7))
    strings = pa.Array.from_buffers(
        pa.large_binary(), 3, [validity, offsets, pa.py_buffer(b"aHIDDENb"[:1] + b"HIDDEb")]
    )
    assert stream_of(strings, "Nullable(String)") == expected_strings([b"a", None, b"b"], nullable=True)


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        (pa.array([True, False, None]), "Nullable(Bool)", "010000000001"),
        (pa.array([19782], pa.int32()).cast(pa.date32()), "Date", "464d"),
        (pa.array([-0.0, None], pa.float64()), "Nullable(Float64)", "0000000000000080" + "00" * 8 + "0001"),
        (pa.array([], pa.large_binary()), "String", ""),
        (pa.chunked_array([], pa.uint8()), "Nullable(UInt8)", ""),
    ],
)
def test_small_streams(values: pa.Array, text: str, expected: str) -> None:
    assert stream_of(values, text).hex() == expected
