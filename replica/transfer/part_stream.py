"""A part on the wire: a stream of record batches of one row, each a piece of a file.

Columns: `file` (its name), `size` (of the whole file, bytes) and `piece`. Files come one after the other in the
order of `PartFiles`, pieces in order, an empty file as one empty piece. No message grows with the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from replica.environment import PartFiles
from replica.errors import CorruptedData, NetworkError

SCHEMA = pa.schema([("file", pa.string()), ("size", pa.uint64()), ("piece", pa.binary())])

_PIECE_BYTES = 1 << 20
_LONGEST_NAME = 255


def cut(part: PartFiles) -> Iterator[pa.RecordBatch]:
    """The batches that carry the part."""
    for name, content in part.files:
        view = memoryview(content)
        for start in range(0, max(len(content), 1), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            yield pa.record_batch([[name], pa.array([len(content)], pa.uint64()), [piece]], schema=SCHEMA)


def join(batches: Iterable[pa.RecordBatch]) -> PartFiles:
    """The part that the batches carry.

    Raises NetworkError when they end in the middle of a file, CorruptedData when they are not what `cut` makes.
    """
    files: dict[str, bytes] = {}
    name, size, content = "", 0, bytearray()
    for batch in batches:
        if batch.num_rows != 1 or not batch.schema.equals(SCHEMA):
            raise CorruptedData(f"not a piece of a part's file: {batch.num_rows} rows of {batch.schema.names}")
        row = batch.to_pylist()[0]
        if not name:
            name, size = _announced(row["file"], row["size"], files)
        if (row["file"], row["size"]) != (name, size) or len(content) + len(row["piece"] or b"") > size:
            raise CorruptedData(f"a piece of {row['file']!r} came where {name!r} lacked {size - len(content)} bytes")
        content += row["piece"] or b""
        if len(content) == size:
            files[name] = bytes(content)
            name, content = "", bytearray()
    if name:
        raise NetworkError(f"the part broke off at byte {len(content)} of {size} of {name!r}")
    return PartFiles(tuple(files.items()))


def _announced(name: str | None, size: int | None, files: dict[str, bytes]) -> tuple[str, int]:
    plain = name and len(name) <= _LONGEST_NAME and not {"/", "\0"} & set(name) and name not in (".", "..")
    if not plain or name is None or size is None or name in files:
        raise CorruptedData(f"{name!r} is refused as the name of a file of a part")
    return name, size
