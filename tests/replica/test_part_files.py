"""A part is made, read back, carried to a disk and back; whatever is wrong with its files is named."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.dedup.siphash import siphash128
from replica.environment import PartCodec, PartFiles
from replica.errors import BadArguments, ChecksumDoesntMatch, CorruptedData, LogicalError
from replica.schema import Column, TableSchema, parse_type
from replica.storage.checksums import FileChecksum, PartChecksums, compare
from replica.storage.disk import LocalDisk
from replica.storage.file_names import escape_for_file_name, table_folder
from replica.storage.part_codec import ArrowCodec, ParquetCodec
from replica.storage.part_files import build_part, load_part, part_columns_text, part_header, read_part, write_part

CODECS: list[PartCodec] = [ParquetCodec(), ArrowCodec()]


def schema_of(**types: str) -> TableSchema:
    return TableSchema(tuple(Column(name, parse_type(text)) for name, text in types.items()))


SCHEMA = schema_of(k="UInt64", v="String", n="Nullable(Int32)", d="Date", t="DateTime('UTC')", f="Float64", b="Bool")
ROWS = pa.table(
    [
        [1, 2, 3],
        [b"a", b"\xff", b""],
        [None, -5, 7],
        [datetime.date(2026, 11, 30)] * 3,
        [0, 1, 2**32 - 1],
        [0.0, -0.0, float("nan")],
        [True, False, True],
    ],
    schema=SCHEMA.arrow_schema,
)


@pytest.fixture(params=CODECS, ids=lambda codec: codec.file_name)
def codec(request: pytest.FixtureRequest) -> PartCodec:
    return request.param


def contents(part: PartFiles) -> dict[str, bytes]:
    return dict(part.files)


def with_file(part: PartFiles, name: str, content: bytes) -> PartFiles:
    return PartFiles(tuple((each, content if each == name else old) for each, old in part.files))


def test_rows_come_back_from_their_part(codec: PartCodec) -> None:
    image = build_part(ROWS, SCHEMA, codec)
    back = read_part(image.files, codec)
    assert back.schema.equals(ROWS.schema)
    assert back.drop_columns("f").equals(ROWS.drop_columns("f"))
    assert build_part(back, SCHEMA, codec) == image
    assert part_header(image.files) == image.header


def test_files_stand_in_a_fixed_order_and_say_what_clickhouse_says(codec: PartCodec) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    assert [name for name, _ in part.files] == [codec.file_name, "columns.txt", "count.txt", "checksums.txt"]
    assert contents(part)["count.txt"] == b"3"
    assert contents(part)["columns.txt"].decode().splitlines()[:4] == [
        "columns format version: 1",
        "7 columns:",
        "`k` UInt64",
        "`v` String",
    ]


def test_columns_text_leaves_out_defaults_and_escapes_names_only() -> None:
    column = Column("a b`c.é\n", parse_type("DateTime('UTC')"), default="now()")
    assert part_columns_text(TableSchema((column,))) == (
        "columns format version: 1\n1 columns:\n`a b\\`c.é\\n` DateTime('UTC')\n"
    )
    rows = pa.table([[5]], schema=TableSchema((column,)).arrow_schema)
    for codec in CODECS:
        assert read_part(build_part(rows, TableSchema((column,)), codec).files, codec).equals(rows)


def test_the_checksum_of_a_column_is_that_of_its_stream() -> None:
    schema = schema_of(k="UInt64", v="String")
    part = build_part(pa.table([[1, 2], [b"x", b"yz"]], schema=schema.arrow_schema), schema, ArrowCodec()).files
    stream = b"xyz" + (1).to_bytes(8, "little") + (3).to_bytes(8, "little")
    first, second = siphash128(stream)
    digest = (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex()
    assert f"column 19 {digest} v.bin" in contents(part)["checksums.txt"].decode().splitlines()


def test_the_header_is_the_same_in_every_format() -> None:
    parquet, arrow = (build_part(ROWS, SCHEMA, codec) for codec in CODECS)
    assert parquet.header == arrow.header
    assert parquet.files != arrow.files


@pytest.mark.parametrize("name", SCHEMA.names)
def test_another_value_in_any_column_is_another_part(name: str) -> None:
    image = build_part(ROWS, SCHEMA, ArrowCodec())
    place = SCHEMA.names.index(name)
    changed = ROWS.set_column(place, ROWS.schema.field(place), ROWS[name].take(pa.array([1, 0, 2])))
    other = build_part(changed, SCHEMA, ArrowCodec())
    if name == "d":  # its three values are the same
        assert other == image
    else:
        with pytest.raises(ChecksumDoesntMatch, match="compressed files"):
            compare(image.header, other.header)
        assert image.header.total != other.header.total


def test_other_columns_or_rows_are_another_part() -> None:
    image = build_part(ROWS, SCHEMA, ArrowCodec())
    renamed = schema_of(**{"kk" if name == "k" else name: SCHEMA.column(name).type.text for name in SCHEMA.names})
    with pytest.raises(ChecksumDoesntMatch, match="columns"):
        compare(image.header, build_part(ROWS.rename_columns(list(renamed.names)), renamed, ArrowCodec()).header)
    with pytest.raises(ChecksumDoesntMatch, match="uncompressed files"):
        compare(image.header, build_part(ROWS.slice(1), SCHEMA, ArrowCodec()).header)


def test_rows_that_do_not_fit_the_schema_make_no_part(codec: PartCodec) -> None:
    for rows in (
        ROWS.drop_columns("b"),
        ROWS.select([*SCHEMA.names[1:], "k"]),
        ROWS.cast(pa.schema([field.with_nullable(True) for field in ROWS.schema])),
    ):
        with pytest.raises(LogicalError):
            build_part(rows, SCHEMA, codec)


ROW = st.tuples(
    st.integers(0, 2**64 - 1),
    st.binary(max_size=6),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32),
)
SMALL = schema_of(**{"k": "UInt64", "v.w": "String", "n": "Nullable(Int32)", "f": "Float32"})


@settings(deadline=None, max_examples=60)
@given(st.lists(ROW, max_size=30), st.integers(0, 30), st.sampled_from(CODECS))
def test_any_rows_are_read_back_whatever_their_chunks(values: list[Any], cut: int, codec: PartCodec) -> None:
    columns = list(zip(*values, strict=True)) if values else [[]] * 4
    rows = pa.table([list(column) for column in columns], schema=SMALL.arrow_schema)
    image = build_part(rows, SMALL, codec)
    assert build_part(pa.concat_tables([rows.slice(0, cut), rows.slice(cut)]), SMALL, codec) == image
    assert build_part(read_part(image.files, codec), SMALL, codec) == image


def test_the_bits_of_a_float_survive(codec: PartCodec) -> None:
    schema = schema_of(f="Float64")
    bits = pa.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0, 1 << 63] * 9, pa.uint64())
    rows = pa.table([bits.view(pa.float64())], schema=schema.arrow_schema)
    back = read_part(build_part(rows, schema, codec).files, codec)
    assert back["f"].combine_chunks().view(pa.uint64()) == bits


@pytest.mark.parametrize("name", ["data", "columns.txt", "count.txt", "checksums.txt"])
@pytest.mark.parametrize("damage", ["cut", "grown", "flipped", "emptied"])
def test_damage_is_found_and_its_file_named(codec: PartCodec, name: str, damage: str) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    name = codec.file_name if name == "data" else name
    content = contents(part)[name]
    damaged = {
        "cut": content[:-1],
        "grown": content + b"\n",
        "flipped": content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 1])
        + content[len(content) // 2 + 1 :],
        "emptied": b"",
    }[damage]
    with pytest.raises((CorruptedData, ChecksumDoesntMatch)) as caught:
        read_part(with_file(part, name, damaged), codec)
    assert name in caught.value.message


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from(CODECS))
def test_no_flipped_bit_goes_unnoticed(data: st.DataObject, codec: PartCodec) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    name, content = data.draw(st.sampled_from(part.files))
    place = data.draw(st.integers(0, len(content) * 8 - 1))
    broken = bytearray(content)
    broken[place // 8] ^= 1 << place % 8
    with pytest.raises((CorruptedData, ChecksumDoesntMatch)):
        read_part(with_file(part, name, bytes(broken)), codec)


def test_a_payload_whose_checksum_was_forged_is_found_by_its_column(codec: PartCodec) -> None:
    """Rows that decode well but are not the rows: only the column streams can tell."""
    part = build_part(ROWS, SCHEMA, codec).files
    other = build_part(ROWS.take(pa.array([1, 0, 2])), SCHEMA, codec).files
    lines = contents(part)["checksums.txt"].decode().splitlines()
    forged = "".join(
        f"{line}\n" for line in [*lines[:-1], contents(other)["checksums.txt"].decode().splitlines()[-1]]
    )
    mixed = with_file(
        with_file(part, codec.file_name, contents(other)[codec.file_name]), "checksums.txt", forged.encode()
    )
    with pytest.raises(ChecksumDoesntMatch, match=r"b\.bin"):
        read_part(mixed, codec)


def forged(part: PartFiles, name: str, content: bytes) -> PartFiles:
    """The part with another file, and checksums that agree with it."""
    checksums = PartChecksums.parse(contents(part)["checksums.txt"].decode())
    files = tuple(FileChecksum.of(name, [content]) if file.name == name else file for file in checksums.files)
    text = dataclasses.replace(checksums, files=files).to_text()
    return with_file(with_file(part, name, content), "checksums.txt", text.encode())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("count.txt", "3", "4"),
        ("count.txt", "3", "03"),
        ("columns.txt", "`k` UInt64", "`k` Int64"),
        ("columns.txt", "`k` UInt64", "`kk` UInt64"),
        ("columns.txt", "`k` UInt64", "`k` UInt64\tDEFAULT\t1"),
        ("columns.txt", "`k` UInt64", "`k` NoSuchType"),
        ("columns.txt", "7 columns", "8 columns"),
    ],
)
def test_files_that_contradict_each_other_are_found_though_checksums_agree(
    codec: PartCodec, name: str, old: str, new: str
) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    other = contents(part)[name].decode().replace(old, new).encode()
    with pytest.raises(CorruptedData, match=name):
        read_part(forged(part, name, other), codec)


@pytest.mark.parametrize("name", ["columns.txt", "count.txt"])
def test_every_checksum_counts(codec: PartCodec, name: str) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    checksums = PartChecksums.parse(contents(part)["checksums.txt"].decode())
    files = tuple(
        dataclasses.replace(file, hash=bytes(16)) if file.name == name else file for file in checksums.files
    )
    text = dataclasses.replace(checksums, files=files).to_text().encode()
    with pytest.raises(ChecksumDoesntMatch, match=name):
        read_part(with_file(part, "checksums.txt", text), codec)


def test_files_that_do_not_belong_together_are_refused(codec: PartCodec) -> None:
    part = build_part(ROWS, SCHEMA, codec).files
    shorter = build_part(ROWS.slice(1), SCHEMA, codec).files
    for files in (
        part.files[1:],
        (*part.files, ("extra.txt", b"")),
        (*part.files, part.files[1]),
        (part.files[0], *shorter.files[1:]),
        (),
    ):
        with pytest.raises((CorruptedData, ChecksumDoesntMatch)):
            read_part(PartFiles(files), codec)


def test_a_part_in_another_format_is_refused() -> None:
    with pytest.raises(CorruptedData, match=r"data\.parquet"):
        read_part(build_part(ROWS, SCHEMA, ArrowCodec()).files, ParquetCodec())


@pytest.mark.parametrize("missing", ["columns.txt", "checksums.txt"])
def test_no_header_without_its_files(missing: str) -> None:
    part = build_part(ROWS, SCHEMA, ArrowCodec()).files
    with pytest.raises(CorruptedData, match=missing):
        part_header(PartFiles(tuple(file for file in part.files if file[0] != missing)))
    with pytest.raises(CorruptedData, match=missing):
        part_header(with_file(part, missing, b"\xff"))


class RecordingDisk(LocalDisk):
    """Says what was synced, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.synced: list[str] = []

    async def fsync(self, path: str) -> None:
        await super().fsync(path)
        self.synced.append(path)

    async def fsync_folder(self, path: str) -> None:
        await super().fsync_folder(path)
        self.synced.append(path + "/")


async def test_a_part_goes_to_the_disk_and_comes_back(codec: PartCodec, tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    part = build_part(ROWS, SCHEMA, codec).files
    folder = f"{table_folder('default', 't')}/tmp_insert_all_0_0_0"
    await write_part(disk, folder, part, fsync=True)
    assert await load_part(disk, folder) == part
    assert disk.synced == [*(f"{folder}/{name}" for name, _ in part.files), f"{folder}/"]


async def test_without_fsync_nothing_is_synced(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    await write_part(disk, "tmp", build_part(ROWS, SCHEMA, ArrowCodec()).files, fsync=False)
    assert disk.synced == []


async def test_left_overs_of_an_earlier_try_do_not_get_into_the_part(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    await disk.make_folder("tmp")
    await disk.write("tmp/stale", b"")
    part = build_part(ROWS, SCHEMA, ArrowCodec()).files
    await write_part(disk, "tmp", part, fsync=False)
    assert await load_part(disk, "tmp") == part


async def test_foreign_files_are_not_written(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    for name in ("../../evil", "/evil", "other.txt", ""):
        with pytest.raises(CorruptedData):
            await write_part(disk, "tmp", PartFiles(((name, b""),)), fsync=False)
    assert await disk.list("") == []


async def test_a_part_that_is_not_there_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await load_part(LocalDisk(tmp_path), "nowhere")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_an_escaped_name_is_one_harmless_step(name: str) -> None:
    escaped = escape_for_file_name(name)
    assert escaped.isascii()
    assert escaped.replace("%", "").replace("_", "").isalnum() or set(escaped) <= {"_"}
    assert unquote(escaped) == name


def test_names_are_escaped_as_in_a_part_of_clickhouse() -> None:
    assert escape_for_file_name("a b`c.é\n") == "a%20b%60c%2E%C3%A9%0A"
    assert table_folder("..", "t/x") == "data/%2E%2E/t%2Fx"
    with pytest.raises(BadArguments):
        table_folder("db", "")
