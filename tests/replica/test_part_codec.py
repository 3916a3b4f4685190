"""Both formats of a part's rows give back what they were given, byte for byte the same for equal tables."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.environment import PartCodec
from replica.errors import CorruptedData
from replica.storage.part_codec import ArrowCodec, ParquetCodec

CODECS: dict[str, PartCodec] = {"parquet": ParquetCodec(), "arrow": ArrowCodec()}

ALL_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    *((kind, [0, 1, 127]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, [0, 1, 255]) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    (pa.float32(), [0.0, -0.0, 1.5]),
    (pa.float64(), [0.0, -0.0, float("inf")]),
    (pa.bool_(), [True, False, True]),
    (pa.string(), ["", "é", "a\0b"]),
    (pa.large_string(), ["", "é", "x"]),
    (pa.binary(), [b"", b"\xff\xfe", b"x"]),
    (pa.large_binary(), [b"", b"\xff\xfe", b"x"]),
    (pa.binary(4), [b"\0\0\0\0", b"abcd", b"\xff\0\xff\0"]),
    (pa.date32(), [datetime.date(1900, 1, 1), datetime.date(1970, 1, 1), datetime.date(2299, 12, 31)]),
    *((pa.timestamp(unit, zone), [0, 1, 1 << 31]) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    (pa.decimal128(38, 5), [decimal.Decimal("-1.00000"), decimal.Decimal(0), decimal.Decimal("1e20")]),
    (pa.decimal256(76, 5), [decimal.Decimal("-1.00000"), decimal.Decimal(0), decimal.Decimal("1e60")]),
    (pa.list_(pa.int32()), [[], [1, 2], [3]]),
    (pa.list_(pa.field("item", pa.string(), nullable=False)), [[], ["a"], ["b", ""]]),
    (pa.map_(pa.string(), pa.uint64()), [[], [("k", 1)], [("k", 1), ("k", 2)]]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "x"}] * 3),
]


@pytest.fixture(params=sorted(CODECS))
def codec(request: pytest.FixtureRequest) -> PartCodec:
    return CODECS[request.param]


@pytest.mark.parametrize(("kind", "values"), ALL_TYPES, ids=[str(kind) for kind, _ in ALL_TYPES])
@pytest.mark.parametrize("nullable", [False, True])
def test_every_type_comes_back_exactly(
    codec: PartCodec, kind: pa.DataType, values: list[Any], nullable: bool
) -> None:
    column = pa.array([*values, None] if nullable else values, kind)
    rows = pa.table([column], schema=pa.schema([pa.field("c", kind, nullable=nullable)]))
    back = codec.decode(codec.encode(rows))
    assert back.schema.equals(rows.schema)
    assert back.equals(rows)


def test_dictionaries_come_back_as_dictionaries(codec: PartCodec) -> None:
    rows = pa.table({"d": pa.array(["x", "y", None, "x"]).dictionary_encode()})
    back = codec.decode(codec.encode(rows))
    assert back.schema.equals(rows.schema)
    assert back.to_pydict() == rows.to_pydict()


def test_column_order_and_no_rows_survive(codec: PartCodec) -> None:
    rows = pa.table({name: pa.array([], pa.uint8()) for name in ("z", "a", "m.x", "ключ")})
    back = codec.decode(codec.encode(rows))
    assert back.schema.equals(rows.schema)
    assert back.num_rows == 0


COLUMNS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2**64 - 1),
        st.none() | st.text(max_size=5),
        st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema(
    [("u", pa.uint64()), ("s", pa.string()), ("l", pa.list_(pa.int16())), ("b", pa.bool_())],
    metadata={"written by": "somebody"},
)


@settings(deadline=None, max_examples=60)
@given(COLUMNS, st.integers(0, 20), st.sampled_from(sorted(CODECS)))
def test_equal_tables_give_equal_bytes_however_they_lie_in_memory(rows: list[Any], cut: int, name: str) -> None:
    codec = CODECS[name]
    table = pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )
    cut = min(cut, table.num_rows)
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    inside = pa.concat_tables([table, table, table]).combine_chunks().slice(table.num_rows, table.num_rows)
    plain = table.replace_schema_metadata(None)
    written = codec.encode(table)
    assert codec.decode(written).equals(table)
    assert codec.encode(chunked) == written
    assert codec.encode(inside) == written
    assert codec.encode(plain) == written
    assert codec.encode(codec.decode(written)) == written


def test_what_lies_under_a_null_does_not_show(codec: PartCodec) -> None:
    validity = pa.py_buffer(b"\x05")
    clean, dirty = (
        pa.Array.from_buffers(pa.int32(), 3, [validity, pa.array([1, under, 3], pa.int32()).buffers()[1]])
        for under in (0, 77)
    )
    assert codec.encode(pa.table({"n": clean})) == codec.encode(pa.table({"n": dirty}))


def test_files_cut_off_emptied_or_foreign_are_corrupted(codec: PartCodec) -> None:
    data = codec.encode(pa.table({"k": list(range(100)), "s": ["x" * n for n in range(100)]}))
    for broken in (b"", b"x", data[:-1], data[: len(data) // 2], data[8:], b"PAR1" * 8, data + b"x"):
        with pytest.raises(CorruptedData, match=codec.file_name):
            codec.decode(broken)


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(sorted(CODECS)))
def test_a_flipped_bit_is_corruption_or_at_least_a_table(data: st.DataObject, name: str) -> None:
    codec = CODECS[name]
    written = bytearray(codec.encode(pa.table({"k": list(range(50)), "s": [["x"] * (n % 3) for n in range(50)]})))
    place = data.draw(st.integers(0, len(written) * 8 - 1))
    written[place // 8] ^= 1 << place % 8
    with contextlib.suppress(CorruptedData):
        codec.decode(bytes(written)).validate(full=True)


def test_a_flipped_bit_in_a_page_of_parquet_is_always_seen() -> None:
    codec = ParquetCodec()
    written = bytearray(codec.encode(pa.table({"k": [n * 7919 for n in range(1000)]})))
    written[len(written) // 3] ^= 1
    with pytest.raises(CorruptedData):
        codec.decode(bytes(written))
