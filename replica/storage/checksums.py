"""What a part's content hashes to, as a text beside the part and as the header in the part's znode.

ClickHouse keeps one file a column and hashes that file. Here all columns share one data file, so a column stands
for itself: as the file `<escaped name>.bin` whose uncompressed content is its column stream, the same bytes that
are hashed for deduplication. The header then depends on the rows alone, not on the format of the data file.
Every hash is ClickHouse's 128-bit SipHash as 16 bytes, first half first, each half little endian.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from replica.dedup.siphash import SipHash128
from replica.errors import ChecksumDoesntMatch, CorruptedData, UnknownFormatVersion

_TEXT_VERSION = "part checksums format version: 1"
_TEXT_LINE = re.compile(r"(column|file|payload) (0|[1-9][0-9]{0,19}) ([0-9a-f]{32}) (\S+)")
_HEADER_VERSION = b"part header format version: 1\n"
_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """Size in bytes and hash of a file, or of the column stream that stands for one."""

    name: str
    size: int
    hash: bytes

    @classmethod
    def of(cls, name: str, pieces: Iterable[bytes | np.ndarray]) -> FileChecksum:
        """The checksum of the pieces, put one after the other."""
        state = SipHash128()
        size = 0
        for piece in pieces:
            state.update(piece)
            size += piece.nbytes if isinstance(piece, np.ndarray) else len(piece)
        return cls(name, size, _hash_bytes(state))


@dataclass(frozen=True, slots=True)
class PartChecksums:
    """All checksums of a part, each tuple in the order of names.

    `columns` are the column streams, `files` the uncompressed files beside them, `payload` is the data file that
    carries the columns: it is verified but has no part in the header.
    """

    columns: tuple[FileChecksum, ...]
    files: tuple[FileChecksum, ...]
    payload: FileChecksum

    def to_text(self) -> str:
        """The content of `checksums.txt`: a version line, then per checksum `<kind> <size> <hex hash> <name>`."""
        kinds = (("column", self.columns), ("file", self.files), ("payload", (self.payload,)))
        lines = [f"{kind} {each.size} {each.hash.hex()} {each.name}" for kind, some in kinds for each in some]
        return "".join(f"{line}\n" for line in (_TEXT_VERSION, *lines))

    @classmethod
    def parse(cls, text: str) -> PartChecksums:
        """The checksums of such a text. Raises UnknownFormatVersion and CorruptedData."""
        version, *lines = text.split("\n")
        if version != _TEXT_VERSION:
            raise UnknownFormatVersion(f"checksums of a part begin with {_TEXT_VERSION!r}, not {version!r}")
        by_kind: dict[str, list[FileChecksum]] = {"column": [], "file": [], "payload": []}
        for line in lines[:-1]:
            match = _TEXT_LINE.fullmatch(line)
            if match is None:
                raise CorruptedData(f"not a line of a part's checksums: {line!r}")
            kind, size, hexadecimal, name = match.groups()
            by_kind[kind].append(FileChecksum(name, int(size), bytes.fromhex(hexadecimal)))
        if len(by_kind["payload"]) != 1:
            raise CorruptedData(f"checksums of a part name one payload, not {len(by_kind['payload'])}")
        checksums = cls(tuple(by_kind["column"]), tuple(by_kind["file"]), by_kind["payload"][0])
        if checksums.to_text() != text:
            raise CorruptedData("checksums of a part are not in their own order, or are cut off")
        return checksums

    def header(self, columns_text: str) -> PartHeader:
        """The header of the part whose `columns.txt` is given."""
        return PartHeader(
            columns_hash=_hash_bytes(_hashed(columns_text.encode())),
            compressed_files=len(self.columns),
            uncompressed_files=len(self.files),
            hash_of_all_files=hash_of_files(self.columns + self.files),
            hash_of_uncompressed_files=hash_of_files(self.files),
            uncompressed_hash_of_compressed_files=hash_of_files(self.columns),
        )


@dataclass(frozen=True, slots=True)
class PartHeader:
    """What a part's znode says about it, field by field as in ClickHouse (`ReplicatedMergeTreePartHeader.cpp`)."""

    columns_hash: bytes
    compressed_files: int
    uncompressed_files: int
    hash_of_all_files: bytes
    hash_of_uncompressed_files: bytes
    uncompressed_hash_of_compressed_files: bytes

    @property
    def total(self) -> str:
        """The part's total checksum, as log entries give it: 32 upper-case hex digits, the high half first."""
        return self.hash_of_all_files[::-1].hex().upper()

    def to_bytes(self) -> bytes:
        """The data of the part's znode."""
        return b"".join(
            (
                _HEADER_VERSION,
                self.columns_hash,
                _varuint(self.compressed_files),
                _varuint(self.uncompressed_files),
                self.hash_of_all_files,
                self.hash_of_uncompressed_files,
                self.uncompressed_hash_of_compressed_files,
            )
        )

    @classmethod
    def parse(cls, data: bytes) -> PartHeader:
        """The header in a part's znode, ours or ClickHouse's. Raises UnknownFormatVersion and CorruptedData."""
        if not data.startswith(_HEADER_VERSION):
            raise UnknownFormatVersion(f"a part header begins with {_HEADER_VERSION!r}, not {data[:40]!r}")
        place = len(_HEADER_VERSION) + _HASH_BYTES
        columns_hash = data[len(_HEADER_VERSION) : place]
        compressed, place = _read_varuint(data, place)
        uncompressed, place = _read_varuint(data, place)
        hashes = [data[start : start + _HASH_BYTES] for start in range(place, len(data), _HASH_BYTES)]
        if [len(each) for each in hashes] != [_HASH_BYTES] * 3:
            raise CorruptedData(f"a part header of {len(data)} bytes is cut off or too long: {data!r}")
        return cls(columns_hash, compressed, uncompressed, *hashes)


def compare(ours: PartHeader, theirs: PartHeader) -> None:
    """Whether two replicas have the same part, as it is asked before a part is committed.

    Raises ChecksumDoesntMatch, naming what differs, unless columns, numbers of files, uncompressed files and the
    uncompressed content of the compressed files are the same. How content was compressed does not count
    (`MergeTreeDataPartChecksum.cpp`, checkEqual).
    """
    for what, mine, other in (
        ("columns", ours.columns_hash, theirs.columns_hash),
        ("number of compressed files", ours.compressed_files, theirs.compressed_files),
        ("number of uncompressed files", ours.uncompressed_files, theirs.uncompressed_files),
        ("uncompressed files", ours.hash_of_uncompressed_files, theirs.hash_of_uncompressed_files),
        (
            "uncompressed content of the compressed files",
            ours.uncompressed_hash_of_compressed_files,
            theirs.uncompressed_hash_of_compressed_files,
        ),
    ):
        if mine != other:
            raise ChecksumDoesntMatch(
                f"The {what} of the part are not the same: {_shown(mine)} here, {_shown(other)} there."
            )


def hash_of_files(files: Iterable[FileChecksum]) -> bytes:
    """One hash over many files: in order of their names, each as the length of its name, its name, its hash."""
    state = SipHash128()
    for file in sorted(files, key=lambda file: file.name.encode()):
        name = file.name.encode()
        state.update(len(name).to_bytes(8, "little") + name + file.hash)
    return _hash_bytes(state)


def _hashed(data: bytes) -> SipHash128:
    state = SipHash128()
    state.update(data)
    return state


def _hash_bytes(state: SipHash128) -> bytes:
    first, second = state.digest()
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def _varuint(number: int) -> bytes:
    """ClickHouse's VarUInt: seven bits a byte, low ones first, the top bit set on all but the last."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _read_varuint(data: bytes, place: int) -> tuple[int, int]:
    """The number that begins at a place, and the place after it."""
    number = 0
    for shift, byte in enumerate(data[place : place + 9]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    raise CorruptedData(f"a number at byte {place} of a part header does not end: {data!r}")


def _shown(value: bytes | int) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
