"""Log entries: what `<table>/log/log-…` and `<replica>/queue/queue-…` hold, the same bytes in both.

`LogEntry.parse` and `LogEntry.to_text` are each other's inverse. Source of the format: ClickHouse's
`ReplicatedMergeTreeLogEntry`, format versions 1 to 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, TypeVar

from coordinator.api import Stat
from replica.entry_text import EntryReader, escaped, quoted, raw
from replica.errors import CannotParseText, LogicalError, NotImplementedInModel, UnknownFormatVersion
from replica.part_name import PartName

OLDEST_FORMAT_VERSION = 1
NEWEST_FORMAT_VERSION = 7
USUAL_FORMAT_VERSION = 4

_NO_ALTER = -1
_NO_TIME = "0000-00-00 00:00:00"
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


class EntryType(StrEnum):
    """What an entry asks for, under ClickHouse's names."""

    EMPTY = "EMPTY"
    GET_PART = "GET_PART"
    ATTACH_PART = "ATTACH_PART"
    MERGE_PARTS = "MERGE_PARTS"
    DROP_RANGE = "DROP_RANGE"
    DROP_PART = "DROP_PART"
    CLEAR_COLUMN = "CLEAR_COLUMN"
    CLEAR_INDEX = "CLEAR_INDEX"
    REPLACE_RANGE = "REPLACE_RANGE"
    MUTATE_PART = "MUTATE_PART"
    ALTER_METADATA = "ALTER_METADATA"
    SYNC_PINNED_PART_UUIDS = "SYNC_PINNED_PART_UUIDS"
    CLONE_PART_FROM_SHARD = "CLONE_PART_FROM_SHARD"


class MergeType(IntEnum):
    """Why a merge was assigned. `str()` gives the word of system.replication_queue."""

    REGULAR = 1
    TTL_DELETE = 2
    TTL_RECOMPRESS = 3
    TTL_DROP = 4

    def __str__(self) -> str:
        return {1: "Regular", 2: "TTLDelete", 3: "TTLRecompress", 4: "TTLDrop"}[self.value]


INSERT_TYPES = frozenset({EntryType.GET_PART, EntryType.ATTACH_PART})
MERGE_TYPES = frozenset({EntryType.MERGE_PARTS, EntryType.MUTATE_PART})
PART_PRODUCING_TYPES = INSERT_TYPES | MERGE_TYPES
"""The types that make exactly one part, `new_part`."""


@dataclass(frozen=True, slots=True)
class ReplacedPart:
    """One part of a REPLACE_RANGE: copied from `source`, a part of the other table, under the name `new`."""

    source: PartName
    new: PartName
    checksum: str


@dataclass(frozen=True, slots=True)
class ReplaceRange:
    """What a REPLACE_RANGE replaces by what. A `drop_range` of one block means that nothing is dropped."""

    drop_range: PartName
    from_database: str
    from_table: str
    parts: tuple[ReplacedPart, ...]
    columns_version: int = -1


@dataclass(frozen=True, slots=True)
class AlterMetadata:
    """The table's new columns and metadata, as the texts of their znodes."""

    have_mutation: bool
    columns: str
    metadata: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry, as a value. Each type uses the fields that its body in the text has; the others stay empty.

    `create_time` is in unix seconds (UTC in the text). `new_part` is the part to make, get or clone, or the range
    to drop or clear. `alter_version` is -1 for a mutation that belongs to no ALTER. `part_type` is empty for wide
    parts. `format_version` is the least version to write: a newer one is taken when a field needs it.
    """

    type: EntryType
    create_time: int
    source_replica: str = ""
    block_id: str = ""
    new_part: PartName | None = None
    source_parts: tuple[PartName, ...] = ()
    is_detach: bool = False
    part_checksum: str = ""
    deduplicate: bool = False
    deduplicate_by_columns: tuple[str, ...] = ()
    merge_type: MergeType = MergeType.REGULAR
    cleanup: bool = False
    new_part_uuid: str = ""
    replace_range: ReplaceRange | None = None
    alter_version: int = _NO_ALTER
    alter_metadata: AlterMetadata | None = None
    cleared_name: str = ""
    source_shard: str = ""
    part_type: str = ""
    quorum: int = 0
    log_entry_id: str = ""
    format_version: int = USUAL_FORMAT_VERSION

    @classmethod
    def from_znode(cls, data: bytes, stat: Stat, newest_format_version: int = NEWEST_FORMAT_VERSION) -> LogEntry:
        """The entry that a znode holds. Raises as `parse`, CannotParseText also for bytes that are no UTF-8."""
        try:
            text = data.decode()
            return cls.parse(text, znode_ctime_ms=stat.ctime, newest_format_version=newest_format_version)
        except UnicodeDecodeError as problem:
            raise CannotParseText(f"Cannot parse log entry: it is not UTF-8: {problem}") from problem

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        znode_ctime_ms: int | None = None,
        newest_format_version: int = NEWEST_FORMAT_VERSION,
    ) -> LogEntry:
        """The entry that the text describes.

        `znode_ctime_ms`, when its znode was made, stands in for a creation time that the text does not have.
        Raises UnknownFormatVersion, BadDataPartName, NotImplementedInModel (a merge type of a newer release) or
        CannotParseText.
        """
        reader = EntryReader(text)
        version = reader.number("format version: ")
        if not OLDEST_FORMAT_VERSION <= version <= newest_format_version:
            raise UnknownFormatVersion(f"Unknown ReplicatedMergeTreeLogEntry format version: {version}")
        fields: dict[str, Any] = {"format_version": version, "create_time": 0}
        if version >= 2:
            fields["create_time"] = _unix_seconds(reader.line("create_time: "))
        if fields["create_time"] == 0 and znode_ctime_ms is not None:
            fields["create_time"] = znode_ctime_ms // 1000
        fields["source_replica"] = reader.line("source replica: ")
        if version >= 3:
            fields["block_id"] = reader.escaped_line("block_id: ")
        if version >= 7:
            fields["log_entry_id"] = reader.escaped_line("log_entry_id: ")
        tag = reader.line()
        if tag not in _BODY_READERS:
            raise CannotParseText(f"Cannot parse log entry: unknown type {tag[:100]!r}")
        fields.update(_BODY_READERS[tag](reader, version))
        if reader.at("part_type: "):
            fields["part_type"] = reader.line("part_type: ")
        if reader.at("quorum: "):
            fields["quorum"] = reader.number("quorum: ")
        reader.end()
        return cls(**fields)

    def to_text(self) -> str:
        """The bytes of the znode. Raises LogicalError for an entry that lacks what its type needs."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        version = self.written_format_version
        yield f"format version: {version}"
        if version >= 2:
            yield f"create_time: {datetime.fromtimestamp(self.create_time, UTC):%Y-%m-%d %H:%M:%S}"
        yield f"source replica: {raw(self.source_replica)}"
        if version >= 3:
            yield f"block_id: {escaped(self.block_id)}"
        if version >= 7:
            yield f"log_entry_id: {escaped(self.log_entry_id)}"
        if self.type not in _BODY_WRITERS:
            raise LogicalError(f"Unknown log entry type: {self.type}")
        yield from _BODY_WRITERS[self.type](self)
        if self.part_type:
            yield f"part_type: {raw(self.part_type)}"
        if self.quorum:
            yield f"quorum: {self.quorum}"

    @property
    def written_format_version(self) -> int:
        """The version that `to_text` writes: high enough for every field that is used."""
        if self.log_entry_id:
            needed = 7
        elif self.deduplicate_by_columns:
            needed = 6
        elif self.new_part_uuid:
            needed = 5
        else:
            needed = OLDEST_FORMAT_VERSION
        return max(self.format_version, needed)

    @property
    def virtual_parts(self) -> tuple[PartName, ...]:
        """The parts (a range to drop among them) that will have existed once this entry is done."""
        if self.replace_range is not None:
            new_parts = tuple(part.new for part in self.replace_range.parts)
            return new_parts if self.drop_range is None else (*new_parts, self.drop_range)
        if self.type in PART_PRODUCING_TYPES or self.type is EntryType.DROP_RANGE:
            return (_present(self.new_part, self),)
        return ()

    @property
    def drop_range(self) -> PartName | None:
        """What this entry drops: a fake part, or for DROP_PART a real one."""
        if self.type in (EntryType.DROP_RANGE, EntryType.DROP_PART):
            return self.new_part
        if self.replace_range is not None and self.replace_range.drop_range.blocks_count > 1:
            return self.replace_range.drop_range
        return None


T = TypeVar("T")


def _present(value: T | None, entry: LogEntry) -> T:
    if value is None:
        raise LogicalError(f"Log entry of type {entry.type} lacks what the type needs: {entry}")
    return value


def _unix_seconds(text: str) -> int:
    if text == _NO_TIME:
        return 0
    try:
        seconds = int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        seconds = -1
    if not (_TIME.fullmatch(text) and 0 <= seconds < 2**32):
        raise CannotParseText(f"Cannot parse log entry: {text[:100]!r} is not a time of the form {_NO_TIME}")
    return seconds


# --- bodies, from text ---------------------------------------------------------------------------------------


def _read_get(reader: EntryReader, version: int) -> dict[str, Any]:
    return {"type": EntryType.GET_PART, "new_part": reader.part()}


def _read_attach(reader: EntryReader, version: int) -> dict[str, Any]:
    part = reader.part()
    return {"type": EntryType.ATTACH_PART, "new_part": part, "part_checksum": reader.line("part_checksum: ")}


def _read_merge(reader: EntryReader, version: int) -> dict[str, Any]:
    sources = []
    while not reader.at("into\n"):
        sources.append(reader.part())
    reader.skip("into")
    fields: dict[str, Any] = {
        "type": EntryType.MERGE_PARTS,
        "source_parts": tuple(sources),
        "new_part": reader.part(),
    }
    if version >= 4:
        fields["deduplicate"] = reader.flag("deduplicate: ")
        while option := next((option for option in _MERGE_OPTIONS if reader.at(option)), None):
            name, read = _MERGE_OPTIONS[option]
            if name in fields:
                raise CannotParseText(f"Cannot parse log entry: the line {option!r} stands there twice")
            fields[name] = read(reader, option)
    return fields


def _read_merge_type(reader: EntryReader, label: str) -> MergeType:
    number = reader.number(label)
    try:
        return MergeType(number)
    except ValueError:
        raise NotImplementedInModel(f"Unknown MergeType {number} in a log entry") from None


_MERGE_OPTIONS: dict[str, tuple[str, Callable[[EntryReader, str], Any]]] = {
    "merge_type: ": ("merge_type", _read_merge_type),
    "into_uuid: ": ("new_part_uuid", EntryReader.uuid),
    "deduplicate_by_columns: ": ("deduplicate_by_columns", EntryReader.quoted_names),
    "cleanup: ": ("cleanup", EntryReader.flag),
}


def _read_drop(reader: EntryReader, version: int) -> dict[str, Any]:
    part = reader.part()
    # Both types have the same text: only the name tells whether it is a range or a part.
    return {"type": EntryType.DROP_RANGE if part.is_fake_drop_range else EntryType.DROP_PART, "new_part": part}


def _read_detach(reader: EntryReader, version: int) -> dict[str, Any]:
    return {**_read_drop(reader, version), "is_detach": True}


def _read_clear(kind: EntryType) -> Callable[[EntryReader, int], dict[str, Any]]:
    def read(reader: EntryReader, version: int) -> dict[str, Any]:
        name = reader.escaped_line()
        reader.skip("from")
        return {"type": kind, "cleared_name": name, "new_part": reader.part()}

    return read


def _read_replace_range(reader: EntryReader, version: int) -> dict[str, Any]:
    drop_range = reader.part("drop_range_name: ")
    from_database = reader.escaped_line("from_database: ")
    from_table = reader.escaped_line("from_table: ")
    sources, new, checksums = (
        reader.quoted_array(label) for label in ("source_parts: ", "new_parts: ", "part_checksums: ")
    )
    if not len(sources) == len(new) == len(checksums):
        raise CannotParseText("Cannot parse log entry: the arrays of a REPLACE_RANGE differ in length")
    parts = tuple(
        ReplacedPart(PartName.parse(source), PartName.parse(name), checksum)
        for source, name, checksum in zip(sources, new, checksums, strict=True)
    )
    columns_version = reader.signed_number("columns_version: ")
    return {
        "type": EntryType.REPLACE_RANGE,
        "replace_range": ReplaceRange(drop_range, from_database, from_table, parts, columns_version),
    }


def _read_mutate(reader: EntryReader, version: int) -> dict[str, Any]:
    source = reader.part()
    reader.skip("to")
    fields: dict[str, Any] = {
        "type": EntryType.MUTATE_PART,
        "source_parts": (source,),
        "new_part": reader.part(),
    }
    if reader.at("to_uuid\n"):
        reader.skip("to_uuid")
        fields["new_part_uuid"] = reader.uuid()
    if reader.at("alter_version\n"):
        reader.skip("alter_version")
        fields["alter_version"] = reader.signed_number()
    return fields


def _read_alter(reader: EntryReader, version: int) -> dict[str, Any]:
    reader.skip("alter_version")
    alter_version = reader.signed_number()
    reader.skip("have_mutation")
    have_mutation = reader.flag()
    reader.skip("columns_str_size:")
    columns = reader.payload(reader.number())
    reader.skip("metadata_str_size:")
    metadata = reader.payload(reader.number())
    return {
        "type": EntryType.ALTER_METADATA,
        "alter_version": alter_version,
        "alter_metadata": AlterMetadata(have_mutation, columns, metadata),
    }


def _read_sync_pinned(reader: EntryReader, version: int) -> dict[str, Any]:
    reader.skip("")
    return {"type": EntryType.SYNC_PINNED_PART_UUIDS}


def _read_clone(reader: EntryReader, version: int) -> dict[str, Any]:
    part = reader.part()
    return {
        "type": EntryType.CLONE_PART_FROM_SHARD,
        "new_part": part,
        "source_shard": reader.line("source_shard: "),
    }


_BODY_READERS: dict[str, Callable[[EntryReader, int], dict[str, Any]]] = {
    "get": _read_get,
    "attach": _read_attach,
    "merge": _read_merge,
    "drop": _read_drop,
    "detach": _read_detach,
    "clear_column": _read_clear(EntryType.CLEAR_COLUMN),
    "clear_index": _read_clear(EntryType.CLEAR_INDEX),
    "REPLACE_RANGE": _read_replace_range,
    "mutate": _read_mutate,
    "alter": _read_alter,
    "sync_pinned_part_uuids": _read_sync_pinned,
    "clone_part_from_shard": _read_clone,
}


# --- bodies, to text: the lines in order ---------------------------------------------------------------------


def _write_get(entry: LogEntry) -> Iterator[str]:
    yield "get"
    yield _part(entry)


def _write_attach(entry: LogEntry) -> Iterator[str]:
    yield "attach"
    yield _part(entry)
    yield f"part_checksum: {raw(entry.part_checksum)}"


def _write_merge(entry: LogEntry) -> Iterator[str]:
    yield "merge"
    yield from map(str, entry.source_parts)
    yield "into"
    yield _part(entry)
    if entry.written_format_version >= 4:
        yield f"deduplicate: {entry.deduplicate:d}"
    if entry.merge_type is not MergeType.REGULAR:
        yield f"merge_type: {entry.merge_type:d}"
    if entry.new_part_uuid:
        yield f"into_uuid: {raw(entry.new_part_uuid)}"
    if entry.deduplicate_by_columns:
        yield f"deduplicate_by_columns: {','.join(map(quoted, entry.deduplicate_by_columns))}"
    if entry.cleanup:
        yield "cleanup: 1"


def _write_drop(entry: LogEntry) -> Iterator[str]:
    yield "detach" if entry.is_detach else "drop"
    yield _part(entry)


def _write_clear(entry: LogEntry) -> Iterator[str]:
    yield entry.type.lower()
    yield escaped(entry.cleared_name)
    yield "from"
    yield _part(entry)


def _write_replace_range(entry: LogEntry) -> Iterator[str]:
    replace = _present(entry.replace_range, entry)
    yield "REPLACE_RANGE"
    yield f"drop_range_name: {replace.drop_range}"
    yield f"from_database: {escaped(replace.from_database)}"
    yield f"from_table: {escaped(replace.from_table)}"
    yield f"source_parts: {_array(str(part.source) for part in replace.parts)}"
    yield f"new_parts: {_array(str(part.new) for part in replace.parts)}"
    yield f"part_checksums: {_array(part.checksum for part in replace.parts)}"
    yield f"columns_version: {replace.columns_version}"


def _write_mutate(entry: LogEntry) -> Iterator[str]:
    yield "mutate"
    yield from map(str, entry.source_parts)
    yield "to"
    yield _part(entry)
    if entry.new_part_uuid:
        yield "to_uuid"
        yield raw(entry.new_part_uuid)
    if entry.alter_version != _NO_ALTER:
        yield "alter_version"
        yield str(entry.alter_version)


def _write_alter(entry: LogEntry) -> Iterator[str]:
    alter = _present(entry.alter_metadata, entry)
    yield "alter"
    yield "alter_version"
    yield str(entry.alter_version)
    yield "have_mutation"
    yield f"{alter.have_mutation:d}"
    yield "columns_str_size:"
    yield str(len(alter.columns.encode()))
    yield alter.columns
    yield "metadata_str_size:"
    yield str(len(alter.metadata.encode()))
    yield alter.metadata


def _write_sync_pinned(entry: LogEntry) -> Iterator[str]:
    yield "sync_pinned_part_uuids"
    yield ""


def _write_clone(entry: LogEntry) -> Iterator[str]:
    yield "clone_part_from_shard"
    yield _part(entry)
    yield f"source_shard: {raw(entry.source_shard)}"


_BODY_WRITERS: dict[EntryType, Callable[[LogEntry], Iterator[str]]] = {
    EntryType.GET_PART: _write_get,
    EntryType.ATTACH_PART: _write_attach,
    EntryType.MERGE_PARTS: _write_merge,
    EntryType.DROP_RANGE: _write_drop,
    EntryType.DROP_PART: _write_drop,
    EntryType.CLEAR_COLUMN: _write_clear,
    EntryType.CLEAR_INDEX: _write_clear,
    EntryType.REPLACE_RANGE: _write_replace_range,
    EntryType.MUTATE_PART: _write_mutate,
    EntryType.ALTER_METADATA: _write_alter,
    EntryType.SYNC_PINNED_PART_UUIDS: _write_sync_pinned,
    EntryType.CLONE_PART_FROM_SHARD: _write_clone,
}


def _part(entry: LogEntry) -> str:
    return str(_present(entry.new_part, entry))


def _array(strings: Iterable[str]) -> str:
    return f"[{','.join(map(quoted, strings))}]"
