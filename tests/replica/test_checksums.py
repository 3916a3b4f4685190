"""Checksums as text, the header as bytes, and the comparison of two headers."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.dedup.siphash import siphash128
from replica.errors import ChecksumDoesntMatch, CorruptedData, UnknownFormatVersion
from replica.storage.checksums import FileChecksum, PartChecksums, PartHeader, compare, hash_of_files

HASHES = st.binary(min_size=16, max_size=16)
NAMES = st.from_regex(r"[0-9A-Za-z_%.]{1,12}", fullmatch=True)
CHECKSUMS = st.builds(FileChecksum, NAMES, st.integers(0, 2**64 - 1), HASHES)
MANY = st.lists(CHECKSUMS, max_size=4).map(tuple)
ALL = st.builds(PartChecksums, MANY, MANY, CHECKSUMS)
HEADERS = st.builds(PartHeader, HASHES, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), HASHES, HASHES, HASHES)

PART = PartChecksums(
    columns=(FileChecksum("k.bin", 24, b"k" * 16), FileChecksum("v.bin", 27, b"v" * 16)),
    files=(FileChecksum("columns.txt", 54, b"c" * 16), FileChecksum("count.txt", 1, b"n" * 16)),
    payload=FileChecksum("data.parquet", 700, b"p" * 16),
)
COLUMNS_TEXT = "columns format version: 1\n2 columns:\n`k` UInt64\n`v` String\n"
HEADER = PART.header(COLUMNS_TEXT)


def sip(data: bytes) -> bytes:
    first, second = siphash128(data)
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def test_a_checksum_does_not_depend_on_how_content_is_cut() -> None:
    assert (
        FileChecksum.of("f", [b"abc"])
        == FileChecksum.of("f", [b"a", b"", b"bc"])
        == FileChecksum("f", 3, sip(b"abc"))
    )


@given(ALL)
def test_checksums_are_read_as_written(checksums: PartChecksums) -> None:
    assert PartChecksums.parse(checksums.to_text()) == checksums


def test_the_text_can_be_read_by_people() -> None:
    assert PART.to_text().splitlines()[:2] == ["part checksums format version: 1", f"column 24 {'6b' * 16} k.bin"]
    assert PART.to_text().splitlines()[-1] == f"payload 700 {'70' * 16} data.parquet"


@pytest.mark.parametrize(
    "broken",
    [
        PART.to_text()[:-1],
        PART.to_text() + "\n",
        PART.to_text().replace("payload", "column"),
        PART.to_text() + "payload 700 " + "70" * 16 + " other\n",
        PART.to_text().replace(" 24 ", " 024 "),
        PART.to_text().replace(" 24 ", " -24 "),
        PART.to_text().replace("6b", "6B"),
        PART.to_text().replace("\n", "\r\n").replace("version: 1\r", "version: 1"),
        "part checksums format version: 1\n" + "\n".join(PART.to_text().split("\n")[1:-1][::-1]) + "\n",
    ],
)
def test_broken_checksums_are_refused(broken: str) -> None:
    with pytest.raises(CorruptedData):
        PartChecksums.parse(broken)


@pytest.mark.parametrize("text", ["", "part checksums format version: 2\n", "checksums format version: 4\n"])
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(UnknownFormatVersion):
        PartChecksums.parse(text)


def test_the_header_has_its_fields_in_the_order_of_clickhouse() -> None:
    def entry(name: bytes, letter: bytes) -> bytes:
        return len(name).to_bytes(8, "little") + name + letter * 16

    plain = entry(b"columns.txt", b"c") + entry(b"count.txt", b"n")
    columns = entry(b"k.bin", b"k") + entry(b"v.bin", b"v")
    assert HEADER.to_bytes() == (
        b"part header format version: 1\n"
        + sip(COLUMNS_TEXT.encode())
        + b"\x02\x02"
        + sip(plain + columns)
        + sip(plain)
        + sip(columns)
    )


def test_files_are_hashed_in_the_order_of_their_names() -> None:
    files = [*PART.columns, *PART.files]
    assert hash_of_files(files) == hash_of_files(files[::-1]) != hash_of_files(files[:-1])


@given(HEADERS)
def test_a_header_is_read_as_written(header: PartHeader) -> None:
    assert PartHeader.parse(header.to_bytes()) == header


def test_large_numbers_take_several_bytes() -> None:
    header = dataclasses.replace(HEADER, compressed_files=300, uncompressed_files=127)
    assert header.to_bytes()[30 + 16 :][:3] == b"\xac\x02\x7f"


@given(st.integers(0, len(HEADER.to_bytes()) - 1))
def test_a_header_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises((CorruptedData, UnknownFormatVersion)):
        PartHeader.parse(HEADER.to_bytes()[:length])


@pytest.mark.parametrize("data", [HEADER.to_bytes() + b"x", HEADER.to_bytes()[:46] + b"\xff" * 60])
def test_a_header_that_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptedData):
        PartHeader.parse(data)


def test_the_total_is_the_high_half_first() -> None:
    header = dataclasses.replace(HEADER, hash_of_all_files=bytes(range(16)))
    assert header.total == "0F0E0D0C0B0A09080706050403020100"


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("columns_hash", "columns"),
        ("compressed_files", "number of compressed files"),
        ("uncompressed_files", "number of uncompressed files"),
        ("hash_of_uncompressed_files", "uncompressed files"),
        ("uncompressed_hash_of_compressed_files", "content of the compressed files"),
    ],
)
def test_every_difference_that_counts_is_named(field: str, named: str) -> None:
    value = getattr(HEADER, field)
    other = dataclasses.replace(HEADER, **{field: value + 1 if isinstance(value, int) else b"x" * 16})
    compare(HEADER, HEADER)
    with pytest.raises(ChecksumDoesntMatch, match=named):
        compare(HEADER, other)


def test_how_the_files_were_compressed_does_not_count() -> None:
    compare(HEADER, dataclasses.replace(HEADER, hash_of_all_files=b"x" * 16))


def test_the_payload_has_no_part_in_the_header() -> None:
    other = dataclasses.replace(PART, payload=FileChecksum("data.arrow", 9, b"x" * 16))
    assert other.header(COLUMNS_TEXT) == HEADER
