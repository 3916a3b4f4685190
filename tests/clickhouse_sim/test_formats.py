"""Files into typed blocks."""

from __future__ import annotations

import csv
import datetime
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.formats import csv_file, csv_quotes
from clickhouse_sim.formats.blocks import cut
from clickhouse_sim.formats.files import STDIN, Reading, read_blocks
from replica.commands import ColumnDefinition
from replica.errors import ClickHouseError
from replica.schema import TableSchema


def schema(*columns: str) -> TableSchema:
    return TableSchema.from_definitions(ColumnDefinition(*column.split(" ", 1)) for column in columns)


def written(tmp_path: Path, content: str | bytes, name: str = "rows.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, table: TableSchema, block_rows: int = 100, **options: Any) -> list[dict[str, Any]]:
    reading = Reading(block_rows, **options)
    return [row for block in read_blocks(path, table, reading) for row in block.to_pylist()]


# --- blocks --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 7), max_size=20), st.integers(1, 9))
def test_blocks_do_not_depend_on_how_the_source_was_chunked(chunks: list[int], block_rows: int) -> None:
    total = sum(chunks)
    numbers = iter(range(total))
    batches = [pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in chunks]
    blocks = [block.column("n").to_pylist() for block in cut(batches, block_rows)]
    assert blocks == [list(range(start, min(start + block_rows, total))) for start in range(0, total, block_rows)]


def test_csv_blocks_do_not_depend_on_the_readers_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a,s\n" + "".join(f'{n},"x\n{n}"\n' for n in range(500)))
    whole = [block.to_pylist() for block in read_blocks(path, schema("a UInt32", "s String"), Reading(64))]
    monkeypatch.setattr(csv_file, "_CHUNK_BYTES", 64)
    assert [block.to_pylist() for block in read_blocks(path, schema("a UInt32", "s String"), Reading(64))] == whole
    assert [len(block) for block in whole] == [64] * 7 + [52]


# --- CSV -----------------------------------------------------------------------------------------------------


def test_csv_of_every_type(tmp_path: Path) -> None:
    table = schema(
        "i Int64",
        "u Nullable(UInt8)",
        "f Float64",
        "b Bool",
        "d Date",
        "utc DateTime",
        "york DateTime('America/New_York')",
        "s String",
        "ns Nullable(String)",
    )
    path = written(
        tmp_path,
        "i,u,f,b,d,utc,york,s,ns\n"
        '-5,\\N,1.5,true,2013-01-01,2013-01-01T10:00:00Z,2013-07-01T10:00:00Z,"a ""b"", c",NA\n'
        "7,,-2,0,2013-12-31,2013-01-01 10:00:00,2013-07-01 10:00:00,,\n"
        '7,NA,nan,1,2013-12-31,2013-01-01 10:00:00,2013-07-01 10:00:00,NA,"\\N"\n',
    )
    [first, second, third] = rows(path, table, null_texts=["NA"])
    utc = datetime.UTC
    assert first == {
        "i": -5,
        "u": None,
        "f": 1.5,
        "b": True,
        "d": datetime.date(2013, 1, 1),
        "utc": datetime.datetime(2013, 1, 1, 10, tzinfo=utc),
        "york": datetime.datetime(2013, 7, 1, 10, tzinfo=utc),
        "s": b'a "b", c',
        "ns": None,
    }
    assert (second["u"], second["s"], second["ns"]) == (None, b"", b"")
    assert second["york"] == datetime.datetime(2013, 7, 1, 14, tzinfo=utc)
    assert (third["u"], third["s"], third["ns"]) == (None, b"NA", b"\\N")


def test_the_header_names_some_columns_in_any_order(tmp_path: Path) -> None:
    """The others get their defaults before anything is hashed, as with INSERT INTO t FORMAT CSVWithNames."""
    path = written(tmp_path, "b,a\n1,2\n")
    [row] = rows(path, schema("a Int8", "b Int8", "c Int8"))
    assert list(row.items()) == [("a", 2), ("b", 1), ("c", 0)]


def test_without_a_header_the_columns_are_the_tables(tmp_path: Path) -> None:
    path = written(tmp_path, "1,2\r\n3,4\r\n")
    assert rows(path, schema("a Int8", "b Int8"), header=False) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_bytes_that_are_no_text_are_a_fine_string(tmp_path: Path) -> None:
    assert rows(written(tmp_path, b"s\n\xff\xfe\n"), schema("s String")) == [{"s": b"\xff\xfe"}]


@pytest.mark.parametrize(
    ("content", "name", "part"),
    [
        ("a,s\n1,x\n300,y\n", "VALUE_IS_OUT_OF_RANGE", "Row 2: '300' in column 'a'"),
        ("a,s\n517.0,x\n", "CANNOT_PARSE_TEXT", "Row 1: '517.0' in column 'a'"),
        ("a,s\n0x10,x\n", "CANNOT_PARSE_TEXT", "Row 1: '0x10' in column 'a'"),
        ("a,s\none,x\n", "CANNOT_PARSE_TEXT", "Row 1: 'one' in column 'a'"),
        ("a,s\n1,x\n\\N,y\n", "CANNOT_INSERT_NULL", "Row 2: NULL in column 'a'"),
        ("a,s\n1,x\n,y\n", "CANNOT_PARSE_TEXT", "Row 2: '' in column 'a'"),
        ("a,z\n1,x\n", "NO_SUCH_COLUMN_IN_TABLE", "'z'"),
        ("a,a\n1,2\n", "CANNOT_PARSE_TEXT", "'a' twice"),
        ("a,s\n1,x\n2\n", "CANNOT_PARSE_TEXT", "Row 2 has 1 field where 2 were expected"),
        ("a,s\n1,x,y\n", "CANNOT_PARSE_TEXT", "Row 1 has 3 fields where 2 were expected"),
        ('a,s\n1,"x\n2,y\n', "CANNOT_PARSE_TEXT", 'Row 1: a quote (") is opened and never closed'),
        ('a,s\n1,x\n"2,y\n3,z\n', "CANNOT_PARSE_TEXT", 'Row 2: a quote (") is opened and never closed'),
        ('a,"s\n1,x\n', "CANNOT_PARSE_TEXT", "The header: a quote"),
        ('a,s\n1,"x"\n2,"end"x\n3,z\n', "CANNOT_PARSE_TEXT", "Row 2: after the closing quote of \"end\" comes 'x'"),
        ('a,s\n1,"x"y', "CANNOT_PARSE_TEXT", "Row 1: after the closing quote"),
        ('a,s\n"1" ,x\n', "CANNOT_PARSE_TEXT", "Row 1: after the closing quote"),
        ('a,s\n1,"a\nb"\n2,"c\nd"e\n', "CANNOT_PARSE_TEXT", "Row 2: after the closing quote"),
        ("", "CANNOT_PARSE_TEXT", "empty"),
        (b"\x00\xff\x00", "CANNOT_PARSE_TEXT", ""),
    ],
)
def test_bad_csv_is_refused_with_its_row_and_column(
    tmp_path: Path, content: str | bytes, name: str, part: str
) -> None:
    with pytest.raises(ClickHouseError) as caught:
        rows(written(tmp_path, content), schema("a UInt8", "s String"))
    assert caught.value.name.startswith(name)
    assert part in caught.value.message


@pytest.mark.parametrize("chunk_bytes", [1, 3, 64, 4 << 20])
def test_quotes_are_checked_however_the_file_is_chunked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    content = b'a,s\r\n1,"x ""y"", \r\nz"\r\n2,5" disk\r\n\r\n"3",""\r\n4,a""b'
    source = csv_quotes.CheckedQuotes(io.BytesIO(content), 100)
    assert source.first_line() == "a,s"
    assert b"".join(iter(lambda: source.read(chunk_bytes), b"")) == content
    assert source.problem == ""
    broken = csv_quotes.CheckedQuotes(io.BytesIO(content + b'\n5,"x"y\n6,z\n'), 100)
    assert b"".join(iter(lambda: broken.read(chunk_bytes), b"")) == content + b"\n"
    assert "comes 'y'" in broken.problem
    table = schema("a UInt8", "s String")
    texts = [row["s"] for row in rows(written(tmp_path, content), table)]
    assert texts == [b'x "y", \r\nz', b'5" disk', b"", b'a""b']


def test_a_record_without_end_is_refused_before_it_fills_the_memory() -> None:
    source = csv_quotes.CheckedQuotes(io.BytesIO(b'a\n1\n"' + b"x\n" * 1000), 100)
    assert b"".join(iter(lambda: source.read(64), b"")) == b"a\n1\n"
    assert "longer than 100 bytes" in source.problem


@pytest.mark.parametrize(
    ("content", "table", "expected"),
    [
        ("s\nx\n\ny\n", "s String", [b"x", b"", b"y"]),
        ("s\r\n\r\n\r\ny\r\n\r\n", "s String", [b"", b"", b"y", b""]),
        ("s\nx\n", "s String", [b"x"]),
        ("s\n\n", "s String", [b""]),
        ("s\n", "s String", []),
        ("n\n1\n\n2", "n Nullable(Int8)", [1, None, 2]),
    ],
)
def test_in_a_file_of_one_column_a_blank_line_is_an_empty_field(
    tmp_path: Path, content: str, table: str, expected: list[Any]
) -> None:
    """As in ClickHouse."""
    path = written(tmp_path, content)
    assert [value for row in rows(path, schema(table)) for value in row.values()] == expected
    assert len(rows(path, schema(table, "other UInt8"))) == len(expected)


def test_a_blank_line_among_several_columns_is_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n\n1,2\n\n\n3,4\n\n")
    assert rows(path, schema("a Int8", "b Int8")) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    headless = written(tmp_path, "\nx\n\n")
    assert [row["s"] for row in rows(headless, schema("s String"), header=False)] == [b"", b"x", b""]


def test_rows_are_numbered_through_the_file_and_good_blocks_come_first(tmp_path: Path) -> None:
    path = written(tmp_path, "a\n" + "".join(f"{n}\n" for n in range(7)) + "x\n")
    blocks = read_blocks(path, schema("a UInt8"), Reading(3))
    assert [next(blocks).num_rows, next(blocks).num_rows] == [3, 3]
    with pytest.raises(ClickHouseError, match="Row 8: 'x' in column 'a'"):
        next(blocks)


_DATES = st.dates(datetime.date(1970, 1, 1), datetime.date(2149, 6, 6))
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            _TEXT,
            _DATES,
        ),
        min_size=1,
    ),
    st.integers(1, 5),
)
def test_what_is_written_as_csv_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int | None, str, datetime.date]], block_rows: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    with path.open("w", newline="") as target:
        writer = csv.writer(target, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["n", "s", "d"])
        writer.writerows(["" if n is None else n, s, d.isoformat()] for n, s, d in values)
    found = rows(path, schema("n Nullable(Int64)", "s String", "d Date"), block_rows)
    assert [(row["n"], row["s"].decode(), row["d"]) for row in found] == values


# --- Parquet -------------------------------------------------------------------------------------------------


def test_parquet_of_any_arrow_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    content = pa.table(
        {
            "s": pa.array(["x", "y", "x"]).dictionary_encode(),
            "a": pa.array([1.0, 2.0, 3.0]),
            "t": pa.array([0, 1, 2], pa.timestamp("ms")),
        }
    )
    pq.write_table(content.set_column(2, "t", content.column("t").cast(pa.timestamp("s"), safe=False)), path)
    blocks = list(read_blocks(path, schema("a UInt8", "s String", "t DateTime"), Reading(2)))
    assert [block.num_rows for block in blocks] == [2, 1]
    assert blocks[0].column("s").to_pylist() == [b"x", b"y"]


def test_parquet_with_a_value_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3, 300]}), path)
    blocks = read_blocks(path, schema("a UInt8"), Reading(3))
    next(blocks)
    with pytest.raises(ClickHouseError, match="Row 4: 300 in column 'a'"):
        next(blocks)


def test_parquet_with_an_unknown_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"b": [1]}), path)
    with pytest.raises(ClickHouseError, match="'b'"):
        list(read_blocks(path, schema("a UInt8"), Reading(3)))


@pytest.mark.parametrize("content", [b"", b"PAR1 and nothing more"])
def test_a_broken_parquet_file(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content, "rows.parquet")
    with pytest.raises(ClickHouseError, match="not a Parquet file"):
        list(read_blocks(path, schema("a UInt8"), Reading(3)))


# --- JSON lines ----------------------------------------------------------------------------------------------


def test_jsonl_of_every_type(tmp_path: Path) -> None:
    table = schema(
        "i Int64",
        "u Nullable(UInt8)",
        "f Float64",
        "b Bool",
        "d Date",
        "utc DateTime",
        "york DateTime('America/New_York')",
        "s String",
        "ns Nullable(String)",
    )
    path = written(
        tmp_path,
        '{"ns": null, "s": "é\\n", "york": "2013-07-01 10:00:00", "utc": 1372672800, "d": "2013-01-01", "b": true,'
        ' "f": 1e2, "u": null, "i": -5}\n\n'
        '{"i": "7", "u": "255", "f": "-2", "b": 0, "d": "2013-12-31", "utc": "2013-01-01T10:00:00Z",'
        ' "york": "1970-01-01T00:00:00Z", "s": 1.10, "ns": ""}',
        "rows.jsonl",
    )
    [first, second] = rows(path, table)
    utc = datetime.UTC
    assert first == {
        "i": -5,
        "u": None,
        "f": 100.0,
        "b": True,
        "d": datetime.date(2013, 1, 1),
        "utc": datetime.datetime(2013, 7, 1, 10, tzinfo=utc),
        "york": datetime.datetime(2013, 7, 1, 14, tzinfo=utc),
        "s": "é\n".encode(),
        "ns": None,
    }
    assert (second["i"], second["u"], second["f"], second["b"]) == (7, 255, -2.0, False)
    assert (second["s"], second["ns"]) == (b"1.10", b"")


def test_a_missing_key_is_the_default_of_its_column(tmp_path: Path) -> None:
    table = TableSchema.from_definitions(
        [
            ColumnDefinition("a", "UInt8"),
            ColumnDefinition("b", "UInt16", "a + 1"),
            ColumnDefinition("c", "UInt32", "b * 10"),
            ColumnDefinition("n", "Nullable(UInt8)"),
            ColumnDefinition("s", "String"),
            ColumnDefinition("d", "Date"),
            ColumnDefinition("t", "DateTime('America/New_York')"),
        ]
    )
    path = written(
        tmp_path,
        '{"a": 1}\n{"a": 2, "b": 7}\n{"c": 5, "s": "x"}\n{}\n{"a": 3, "b": null, "c": 1, "n": 4}\n',
        "rows.ndjson",
    )
    found = rows(path, table)
    assert [(row["a"], row["b"], row["c"]) for row in found] == [
        (1, 2, 20),
        (2, 7, 70),
        (0, 1, 5),
        (0, 1, 10),
        (3, 4, 1),
    ]
    assert [row["n"] for row in found] == [None, None, None, None, 4]
    assert [row["s"] for row in found] == [b"", b"", b"x", b"", b""]
    assert {(row["d"], row["t"].timestamp()) for row in found} == {(datetime.date(1970, 1, 1), 0.0)}


def test_the_order_of_keys_and_the_spelling_of_defaults_make_no_difference(tmp_path: Path) -> None:
    table = schema("a UInt8", "b String")
    one = list(read_blocks(written(tmp_path, '{"b": "", "a": 1}\n', "one.jsonl"), table, Reading(5)))
    other = list(read_blocks(written(tmp_path, '{"a": "1"}\n', "other.jsonl"), table, Reading(5)))
    csv_rows = list(read_blocks(written(tmp_path, "a,b\n1,\n", "rows.csv"), table, Reading(5)))
    assert one == other == csv_rows


@pytest.mark.parametrize(
    ("content", "name", "part"),
    [
        ('{"a": 1}\n{"a": 300}\n', "VALUE_IS_OUT_OF_RANGE", "Row 2: '300' in column 'a'"),
        ('{"a": "x"}\n', "CANNOT_PARSE_TEXT", "Row 1: 'x' in column 'a'"),
        ('{"a": 1.5}\n', "CANNOT_PARSE_TEXT", "Row 1: '1.5' in column 'a'"),
        ('{"a": ""}\n', "CANNOT_PARSE_TEXT", "Row 1: '' in column 'a'"),
        ('{"n": ""}\n', "CANNOT_PARSE_TEXT", "Row 1: '' in column 'n'"),
        ('\n\n{"a": 1}\n{"z": 1}\n', "NO_SUCH_COLUMN_IN_TABLE", "Row 2: There is no column 'z'"),
        ('{"a": 1, "a": 1}\n', "CANNOT_PARSE_TEXT", "Row 1 gives column 'a' twice"),
        ('{"a": [1]}\n', "CANNOT_PARSE_TEXT", "Row 1: an array in column 'a'"),
        ('{"s": {"x": 1}}\n', "CANNOT_PARSE_TEXT", "Row 1: an object in column 's'"),
        ('{"s": "\\ud800"}\n', "CANNOT_PARSE_TEXT", "Row 1: half of a surrogate pair in column 's'"),
        ('{"a": 1\n', "CANNOT_PARSE_TEXT", "Row 1 is not a JSON object on one line"),
        ("[1]\n", "CANNOT_PARSE_TEXT", "Row 1 is not a JSON object: [1]"),
        ('{"a": 1} {"a": 2}\n', "CANNOT_PARSE_TEXT", "Row 1 is not a JSON object on one line"),
        ('{"t": 4294967296}\n', "CANNOT_PARSE_TEXT", "Row 1: '4294967296' in column 't'"),
        ("[" * 100_000, "CANNOT_PARSE_TEXT", "Row 1 is not a JSON object"),
    ],
)
def test_bad_jsonl_is_refused_with_its_row_and_column(tmp_path: Path, content: str, name: str, part: str) -> None:
    with pytest.raises(ClickHouseError) as caught:
        rows(
            written(tmp_path, content, "rows.jsonl"), schema("a UInt8", "s String", "t DateTime", "n Nullable(UInt8)")
        )
    assert caught.value.name.startswith(name)
    assert part in caught.value.message


def test_jsonl_bytes_that_are_no_text_are_a_fine_string(tmp_path: Path) -> None:
    assert rows(written(tmp_path, b'{"s": "\xff"}', "rows.jsonl"), schema("s String")) == [{"s": b"\xff"}]


def test_jsonl_is_cut_as_csv_is_and_good_blocks_come_first(tmp_path: Path) -> None:
    path = written(tmp_path, "".join(f'{{"a": {n}}}\n' for n in range(7)) + '{"a": "x"}\n', "rows.jsonl")
    blocks = read_blocks(path, schema("a UInt8"), Reading(3))
    assert [next(blocks).num_rows, next(blocks).num_rows] == [3, 3]
    with pytest.raises(ClickHouseError, match="Row 8: 'x' in column 'a'"):
        next(blocks)


@given(
    st.lists(st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(-(2**63), 2**63 - 1), "s": _TEXT})),
    st.integers(1, 5),
)
def test_what_is_written_as_jsonl_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], block_rows: int
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in values))
    found = rows(path, schema("n Nullable(Int64)", "s String"), block_rows)
    assert found == [{"n": row.get("n"), "s": row.get("s", "").encode()} for row in values]


# --- Arrow ---------------------------------------------------------------------------------------------------

_ARROW = pa.table({"a": [1.0, 2.0, 3.0], "s": pa.array(["x", "y", "x"]).dictionary_encode()})


def arrow_file(path: Path, table: pa.Table, kind: str) -> Path:
    with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".arrows"])
def test_arrow_file_or_stream_is_told_by_its_content(tmp_path: Path, kind: str, suffix: str) -> None:
    path = arrow_file(tmp_path / f"rows{suffix}", _ARROW, kind)
    blocks = list(read_blocks(path, schema("s String", "a UInt8"), Reading(2)))
    assert [block.to_pylist() for block in blocks] == [
        [{"s": b"x", "a": 1}, {"s": b"y", "a": 2}],
        [{"s": b"x", "a": 3}],
    ]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_with_a_value_that_does_not_fit(tmp_path: Path, kind: str) -> None:
    path = arrow_file(tmp_path / "rows.arrow", pa.table({"a": [1, 2, 3, 300]}), kind)
    blocks = read_blocks(path, schema("a UInt8"), Reading(3))
    next(blocks)
    with pytest.raises(ClickHouseError, match="Row 4: 300 in column 'a'"):
        next(blocks)


@pytest.mark.parametrize("content", [b"", b"ARROW1 and nothing more", b"\xff\xff\xff\xff\x10\x00\x00\x00"])
def test_broken_arrow(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ClickHouseError, match="not an Arrow file or stream"):
        rows(written(tmp_path, content, "rows.arrow"), schema("a UInt8"))


def test_arrow_with_an_unknown_column(tmp_path: Path) -> None:
    with pytest.raises(ClickHouseError, match="'s'"):
        rows(arrow_file(tmp_path / "rows.arrow", _ARROW, "file"), schema("a UInt8"))


# --- which format --------------------------------------------------------------------------------------------


class Pipe(io.RawIOBase):
    """What comes through a pipe: it can be read once and not sought in."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        return self._content.readinto(target)


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "arrow", "arrow stream"])
def test_every_format_comes_from_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "rows"
    table = pa.table({"a": [1, 2, 3]})
    match name:
        case "csv":
            path.write_text("a\n1\n2\n3\n")
        case "jsonl":
            path.write_text('{"a":1}\n{"a":2}\n{"a":3}\n')
        case "parquet":
            pq.write_table(table, path)
        case _:
            arrow_file(path, table, "file" if name == "arrow" else "stream")
    stdin = io.TextIOWrapper(io.BufferedReader(Pipe(path.read_bytes())))
    monkeypatch.setattr("sys.stdin", stdin)
    found = rows(STDIN, schema("a UInt8"), 2, format=name.split()[0])
    assert found == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_other_kinds_of_files_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClickHouseError, match=r"must end in \.csv, \.parquet"):
        read_blocks(tmp_path / "rows.xlsx", schema("a UInt8"), Reading(1))
    with pytest.raises(ClickHouseError, match="--no-header"):
        read_blocks(tmp_path / "rows.parquet", schema("a UInt8"), Reading(1, header=False))
