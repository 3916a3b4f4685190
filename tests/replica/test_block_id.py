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
from replica.dedup.block_id import data_hash, insert_extension
from replica.dedup.column_stream import column_stream
from replica.dedup.siphash import gathered
from replica.dedup.tokens import ViewStep, extension
from replica.schema import Column, TableSchema, conform, parse_type
from replica.schema.types import converted
from scripts.check_block_ids import mismatch, structure_and_block

VECTORS = [
    json.loads(line) for line in (Path(__file__).parent.parent / "data" / "block_ids.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_ids_of_a_vector(vector: dict[str, Any]) -> None:
    structure, block = structure_and_block(vector)
    listed = conform(block, structure.schema)
    if "stream_hex" in vector:
        streams = (stream_of(listed[name], structure.schema.column(name).type.text) for name in listed.column_names)
        assert b"".join(streams).hex() == vector["stream_hex"]
    if "data_hash" in vector:
        assert "{}_{}".format(*data_hash(listed, structure.schema)) == vector["data_hash"]
    assert mismatch(vector) == ""


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
    return b"".join(gathered(buffer).tobytes() for buffer in column_stream(values, parse_type(text)))


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


# Types, and values as text that spells them.
SPELLED: dict[str, list[bytes]] = {
    "UInt8": [b"0", b"7", b"255"],
    "Int256": [b"-1", b"0", b"170141183460469231731687303715884105728"],
    "Float32": [b"-0", b"nan", b"1.5"],
    "BFloat16": [b"1.01", b"-0"],
    "Bool": [b"true", b"false"],
    "Date": [b"2149-06-06", b"1970-01-01"],
    "Date32": [b"1900-01-01", b"2299-12-31"],
    "DateTime('Asia/Kathmandu')": [b"2024-02-29 12:34:56", b"2024-02-29T12:34:56Z"],
    "DateTime64(2)": [b"1969-12-31 23:59:59.25", b"1709210096.5"],
    "Decimal(9, 2)": [b"-3.1", b"0", b"1234567.89"],
    "Decimal(38, 10)": [b"-3.1", b"1e3"],
    "UUID": [b"00112233-4455-6677-8899-aabbccddeeff"],
    "IPv4": [b"1.2.3.4"],
    "IPv6": [b"::1", b"1.2.3.4"],
    "Enum8('a' = 1, 'b' = -5)": [b"a", b"b"],
    "FixedString(3)": [b"", b"ab\0", b"xyz"],
    "String": [b"", b"a", b"\xff\0"],
    "Time64(3)": [b"-1:00:00.5", b"999:59:59"],
    "Array(Nullable(String))": [b"[]", b"['a',NULL,'']"],
    "Tuple(a UInt8, b Array(String))": [b"(1,['x'])", b"(0,[])"],
    "Map(String, UInt64)": [b"{}", b"{'b':1,'a':2}", b"{'a':1,'a':2}"],
}


def wrappings(text: str) -> list[str]:
    found = [text]
    if not text.startswith(("Array", "Map")):
        found.append(f"Nullable({text})")
    if text in ("UInt8", "Int256", "Float32", "Date", "UUID", "IPv6", "FixedString(3)", "String"):
        found += [f"LowCardinality({text})", f"LowCardinality(Nullable({text}))"]
    return found


@given(st.data())
def test_any_representation_of_equal_values_has_the_same_stream(data: st.DataObject) -> None:
    inner = data.draw(st.sampled_from(sorted(SPELLED)))
    text = data.draw(st.sampled_from(wrappings(inner)))
    data_type = parse_type(text)
    value = st.sampled_from(SPELLED[inner])
    values = data.draw(st.lists(st.none() | value if data_type.nullable else value, max_size=8))
    places = data.draw(cuts)
    spelled = pa.array(values, pa.large_binary())
    own = converted(spelled, data_type)
    expected = stream_of(own, text)
    around = pa.array([SPELLED[inner][0], *values, SPELLED[inner][-1]], pa.large_binary())
    representations = [spelled, spelled.dictionary_encode(), around.slice(1, len(values)), cut(spelled, places)]
    representations += [cut(own, places), cut(spelled.dictionary_encode(), places), pc.run_end_encode(spelled)]
    representations.append(converted(around, data_type).slice(1, len(values)))
    if not pa.types.is_nested(own.type):
        representations += [own.dictionary_encode(), cut(own.dictionary_encode(), places)]
    for each in representations:
        assert stream_of(each, text) == expected
    if len(set(values)) == 1:
        assert stream_of(pa.repeat(spelled[0], len(values)), text) == expected


def test_a_low_cardinality_is_a_type_and_not_a_representation() -> None:
    words = pa.array([b"x", b"", b"x"], pa.large_binary())
    assert stream_of(words.dictionary_encode(), "String") == stream_of(words, "String")
    assert stream_of(words, "LowCardinality(String)") == stream_of(
        words.dictionary_encode(), "LowCardinality(String)"
    )
    assert stream_of(words, "LowCardinality(String)").hex() == (
        "0200000000000000780001000000000000000002000000000000007800"
    )


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
