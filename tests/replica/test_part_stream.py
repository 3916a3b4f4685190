"""A part survives being cut into pieces; pieces that do not make a part are refused."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.environment import PartFiles
from replica.errors import CorruptedData, NetworkError
from replica.transfer import part_stream
from replica.transfer.part_stream import SCHEMA, cut, join

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=9).filter(
    lambda name: name not in (".", "..")
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_stream, "_PIECE_BYTES", 4)


def pieces(*rows: tuple[str | None, int | None, bytes | None]) -> Iterable[pa.RecordBatch]:
    return [
        pa.record_batch([[name], pa.array([size], pa.uint64()), [piece]], schema=SCHEMA) for name, size, piece in rows
    ]


@given(st.dictionaries(NAMES, st.binary(max_size=13)))
def test_joining_gives_what_was_cut(files: dict[str, bytes]) -> None:
    part = PartFiles(tuple(files.items()))
    batches = list(cut(part))
    assert all(len(batch["piece"][0].as_py()) <= 4 for batch in batches)
    assert join(batches) == part


def test_a_stream_that_ends_early_is_a_broken_connection() -> None:
    batches = list(cut(PartFiles((("a", b"123456789"),))))
    with pytest.raises(NetworkError, match="byte 8 of 9 of 'a'"):
        join(batches[:-1])


@pytest.mark.parametrize(
    "batches",
    [
        pieces(("../etc", 1, b"x")),
        pieces(("..", 1, b"x")),
        pieces(("", 1, b"x")),
        pieces(("n" * 256, 1, b"x")),
        pieces((None, 1, b"x")),
        pieces(("a", None, b"x")),
        pieces(("a", 1, b"xy")),
        pieces(("a", 2, b"x"), ("b", 1, b"x")),
        pieces(("a", 2, b"x"), ("a", 3, b"xy")),
        pieces(("a", 1, b"x"), ("a", 1, b"x")),
        [pa.record_batch({"file": ["a"]})],
        [batch.slice(0, 0) for batch in pieces(("a", 1, b"x"))],
    ],
)
def test_what_is_no_part_is_refused(batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(CorruptedData):
        join(batches)
