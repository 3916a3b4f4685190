"""A part as files: made from rows, read back with every checksum verified, put on a disk and taken from it.

The files of a part, in this order: the data file (named by its codec), `columns.txt` and `count.txt` (as in a
part of ClickHouse), `checksums.txt` (`replica.storage.checksums`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from replica.dedup.column_stream import column_stream
from replica.environment import Disk, PartCodec, PartFiles
from replica.errors import ChecksumDoesntMatch, ClickHouseError, CorruptedData, LogicalError
from replica.quoting import backquote
from replica.schema import TableSchema
from replica.storage.checksums import FileChecksum, PartChecksums, PartHeader
from replica.storage.file_names import escape_for_file_name
from replica.storage.part_codec import ArrowCodec, ParquetCodec

COLUMNS_FILE = "columns.txt"
COUNT_FILE = "count.txt"
CHECKSUMS_FILE = "checksums.txt"
FILES_IN_A_PART = 4

# Every file that a part may have, and its place among them.
_KNOWN_FILES = {
    ParquetCodec().file_name: 0,
    ArrowCodec().file_name: 0,
    COLUMNS_FILE: 1,
    COUNT_FILE: 2,
    CHECKSUMS_FILE: 3,
}


@dataclass(frozen=True, slots=True)
class PartImage:
    """A part that was just made: its files, and the header for its znode."""

    files: PartFiles
    header: PartHeader

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(dict(self.files.files)[COUNT_FILE])

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(content) for _, content in self.files.files)


def build_part(rows: pa.Table, schema: TableSchema, codec: PartCodec) -> PartImage:
    """The part with these rows, in this order: a pure job for `Workers`.

    Raises LogicalError unless the rows have exactly the columns of the schema, in its order and Arrow types.
    """
    if not rows.schema.equals(schema.arrow_schema):
        raise LogicalError(
            f"a part of a table with {_shown(schema.arrow_schema)} has no rows of {_shown(rows.schema)}"
        )
    columns_text = part_columns_text(schema)
    payload = (codec.file_name, codec.encode(rows))
    plain_files = ((COLUMNS_FILE, columns_text.encode()), (COUNT_FILE, _count_text(rows)))
    checksums = PartChecksums(_column_checksums(rows, schema), _file_checksums(plain_files), _file_checksum(*payload))
    files = (payload, *plain_files, (CHECKSUMS_FILE, checksums.to_text().encode()))
    return PartImage(PartFiles(files), checksums.header(columns_text))


def read_part(part: PartFiles, codec: PartCodec) -> pa.Table:
    """The rows of a part: a pure job for `Workers`.

    Raises CorruptedData or ChecksumDoesntMatch, naming the file, unless the part has exactly its four files and
    each of them is what `build_part` wrote.
    """
    _check_files(part, codec)
    contents = dict(part.files)
    stored = _stored_checksums(contents)
    schema = _stored_schema(contents)
    rows = codec.decode(contents[codec.file_name])
    if not rows.schema.equals(schema.arrow_schema):
        raise CorruptedData(
            f"{codec.file_name} has {_shown(rows.schema)}, but {COLUMNS_FILE} {_shown(schema.arrow_schema)}"
        )
    if contents[COUNT_FILE] != _count_text(rows):
        raise CorruptedData(
            f"{COUNT_FILE} says {contents[COUNT_FILE]!r}, but {codec.file_name} has {rows.num_rows} rows"
        )
    _verify(stored.columns, _column_checksums(rows, schema))
    return rows


def verified_part(part: PartFiles, codec: PartCodec) -> PartImage:
    """The files of a part that came from outside, after every check of `read_part`: a pure job for `Workers`."""
    read_part(part, codec)
    return PartImage(part, part_header(part))


def checked_header(part: PartFiles, codec: PartCodec) -> PartHeader:
    """The header of files that are as `checksums.txt` says, without a look at the rows: a pure job for `Workers`.

    Raises CorruptedData or ChecksumDoesntMatch. Whether `checksums.txt` itself is as it was, only the header tells,
    and of the sizes in it `check_checksums`.
    """
    _check_files(part, codec)
    return part_header(part)


def _check_files(part: PartFiles, codec: PartCodec) -> None:
    contents = dict(part.files)
    expected = [codec.file_name, COLUMNS_FILE, COUNT_FILE, CHECKSUMS_FILE]
    if sorted(name for name, _ in part.files) != sorted(expected):
        raise CorruptedData(f"a part has the files {expected}, not {[name for name, _ in part.files]}")
    stored = _stored_checksums(contents)
    payload, *plain_files = ((name, contents[name]) for name in expected[:-1])
    _verify(stored.files, _file_checksums(plain_files))
    _verify((stored.payload,), (_file_checksum(*payload),))


def check_checksums(part: PartFiles, verified: bytes) -> None:
    """Raises CorruptedData unless `checksums.txt` is what it was: a header does not tell the sizes in it."""
    if dict(part.files)[CHECKSUMS_FILE] != verified:
        raise CorruptedData(f"{CHECKSUMS_FILE} is not what it was when the part was read last")


def part_header(part: PartFiles) -> PartHeader:
    """The header by the part's own `checksums.txt` and `columns.txt`, without a look at the rows.

    Raises CorruptedData when they are missing or broken.
    """
    contents = dict(part.files)
    return _stored_checksums(contents).header(_stored_text(contents, COLUMNS_FILE))


def part_columns_text(schema: TableSchema) -> str:
    """The content of `columns.txt`: names and types, without defaults (`NamesAndTypes.cpp`)."""
    lines = [f"{backquote(column.name)} {column.type.text}" for column in schema.columns]
    return "".join(f"{line}\n" for line in ("columns format version: 1", f"{len(lines)} columns:", *lines))


async def write_part(disk: Disk, folder: str, part: PartFiles, fsync: bool) -> None:
    """Write the part's files into a temporary folder, made for it and emptied of what an earlier try left there.

    With `fsync`, the content and the names in the folder are durable afterwards; the folder's own name is made so
    by whoever renames it to the final one. Raises CorruptedData for a file that is not one of a part.
    """
    for name, _ in part.files:
        if name not in _KNOWN_FILES:
            raise CorruptedData(f"{name!r} is not a file of a part; it has {sorted(_KNOWN_FILES)}")
    if await disk.exists(folder):
        await disk.remove(folder)
    await disk.make_folder(folder)
    for name, content in part.files:
        await disk.write(f"{folder}/{name}", content)
        if fsync:
            await disk.fsync(f"{folder}/{name}")
    if fsync:
        await disk.fsync_folder(folder)


async def load_part(disk: Disk, folder: str) -> PartFiles:
    """All files in a part's folder, in the order of a part, nothing verified. FileNotFoundError without a folder."""
    names = sorted(await disk.list(folder), key=lambda name: (_KNOWN_FILES.get(name, len(_KNOWN_FILES)), name))
    return PartFiles(tuple([(name, await disk.read(f"{folder}/{name}")) for name in names]))


def _column_checksums(rows: pa.Table, schema: TableSchema) -> tuple[FileChecksum, ...]:
    checksums = [
        FileChecksum.of(f"{escape_for_file_name(column.name)}.bin", column_stream(rows[column.name], column.type))
        for column in schema.columns
    ]
    return tuple(sorted(checksums, key=lambda checksum: checksum.name))


def _file_checksums(files: Iterable[tuple[str, bytes]]) -> tuple[FileChecksum, ...]:
    return tuple(_file_checksum(name, content) for name, content in files)


def _file_checksum(name: str, content: bytes) -> FileChecksum:
    return FileChecksum.of(name, [content])


def _count_text(rows: pa.Table) -> bytes:
    return str(rows.num_rows).encode()


def _verify(stored: tuple[FileChecksum, ...], actual: tuple[FileChecksum, ...]) -> None:
    if [each.name for each in stored] != [each.name for each in actual]:
        raise CorruptedData(
            f"{CHECKSUMS_FILE} lists {[each.name for each in stored]}, the part has {[each.name for each in actual]}"
        )
    for expected, found in zip(stored, actual, strict=True):
        if expected != found:
            raise ChecksumDoesntMatch(
                f"{found.name} has {found.size} bytes with hash {found.hash.hex()}, "
                f"not {expected.size} with {expected.hash.hex()} as {CHECKSUMS_FILE} says"
            )


def _stored_checksums(contents: dict[str, bytes]) -> PartChecksums:
    try:
        return PartChecksums.parse(_stored_text(contents, CHECKSUMS_FILE))
    except ClickHouseError as problem:
        raise CorruptedData(f"{CHECKSUMS_FILE}: {problem.message}") from problem


def _stored_schema(contents: dict[str, bytes]) -> TableSchema:
    text = _stored_text(contents, COLUMNS_FILE)
    try:
        schema = TableSchema.parse(text)
    except ClickHouseError as problem:
        raise CorruptedData(f"{COLUMNS_FILE}: {problem.message}") from problem
    if part_columns_text(schema) != text:
        raise CorruptedData(f"{COLUMNS_FILE} is not written as the columns of a part: {text!r}")
    return schema


def _stored_text(contents: dict[str, bytes], name: str) -> str:
    if name not in contents:
        raise CorruptedData(f"the part has no {name}")
    try:
        return contents[name].decode()
    except UnicodeDecodeError as problem:
        raise CorruptedData(f"{name} is not UTF-8: {problem}") from problem


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
