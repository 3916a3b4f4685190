"""The header's hashes over files are the ones that real ClickHouse computes over the files of its own parts."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from replica.storage.checksums import FileChecksum, hash_of_files

pytestmark = pytest.mark.real


def varuint(source: io.BytesIO) -> int:
    number, shift = 0, 0
    while (byte := source.read(1)[0]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
    return number | byte << shift


def files_of(checksums_txt: bytes) -> tuple[list[FileChecksum], list[FileChecksum], list[FileChecksum]]:
    """Compressed files by their own hash, the same by the hash of their content, uncompressed files."""
    header, block = checksums_txt.split(b"\n", 1)
    assert header == b"checksums format version: 4"
    compressed_size, size = (int.from_bytes(block[start : start + 4], "little") for start in (17, 21))
    codec = pa.Codec({0x82: "lz4_raw", 0x90: "zstd"}[block[16]])
    text = codec.decompress(block[25 : 16 + compressed_size], size, asbytes=True)
    source = io.BytesIO(text)
    compressed, contents, plain = [], [], []
    for _ in range(varuint(source)):
        name = source.read(varuint(source)).decode()
        own = FileChecksum(name, varuint(source), source.read(16))
        if source.read(1) == b"\1":
            compressed.append(own)
            contents.append(FileChecksum(name, varuint(source), source.read(16)))
        else:
            plain.append(own)
    assert source.read() == b""
    return compressed, contents, plain


def test_hashes_of_files_are_those_of_clickhouse(tmp_path: Path) -> None:
    from chdb import session

    engine = session.Session(str(tmp_path / "engine"))
    engine.query("CREATE DATABASE d")
    engine.query(
        "CREATE TABLE d.t (k UInt64, `a b` Nullable(String)) ENGINE = MergeTree ORDER BY k"
        " SETTINGS min_bytes_for_wide_part = 0"
    )
    engine.query("INSERT INTO d.t SELECT number, toString(number) FROM numbers(1000)")
    answer = engine.query(
        "SELECT path, hash_of_all_files AS all, hash_of_uncompressed_files AS plain,"
        " uncompressed_hash_of_compressed_files AS contents FROM system.parts WHERE table = 't'",
        "JSONEachRow",
    )
    part = json.loads(str(answer))
    compressed, contents, plain = files_of((Path(part["path"]) / "checksums.txt").read_bytes())
    assert len(compressed) > 4
    assert part["all"] == hash_of_files(compressed + plain)[::-1].hex()
    assert part["plain"] == hash_of_files(plain)[::-1].hex()
    assert part["contents"] == hash_of_files(contents)[::-1].hex()
    engine.close()
