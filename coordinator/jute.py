"""ZooKeeper's record encoding: big-endian integers, counted strings, buffers and lists, no padding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from coordinator.access import Acl, Identity
from coordinator.api import Stat

T = TypeVar("T")

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_STAT = struct.Struct(">qqqqiiiqiiq")


class Truncated(ValueError):
    """The bytes end before the record does, or a count makes no sense."""


class Reader:
    """Takes values off the front of some bytes. Every method raises Truncated when they do not suffice."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self._offset = offset

    @property
    def at_end(self) -> bool:
        return self._offset >= len(self._data)

    def int32(self) -> int:
        return int(self._unpack(_INT32)[0])

    def int64(self) -> int:
        return int(self._unpack(_INT64)[0])

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length == -1:
            return None
        return self._take(length)

    def string(self) -> str:
        """UTF-8; what is not becomes U+FFFD, as in Java. Raises Truncated for a null string."""
        data = self.buffer()
        if data is None:
            raise Truncated("a null string")
        return data.decode("utf-8", "replace")

    def items(self, item: Callable[[], T]) -> tuple[T, ...]:
        """A list (null is an empty one), each item read by `item`."""
        return tuple(item() for _ in range(self.int32()))

    def strings(self) -> tuple[str, ...]:
        return self.items(self.string)

    def acl(self) -> tuple[Acl, ...]:
        return self.items(lambda: Acl(self.int32(), Identity(self.string(), self.string())))

    def stat(self) -> Stat:
        return Stat(*self._unpack(_STAT))

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        end = self._offset + form.size
        if end > len(self._data):
            raise Truncated("the record is cut short")
        values = form.unpack_from(self._data, self._offset)
        self._offset = end
        return values

    def _take(self, length: int) -> bytes:
        end = self._offset + length
        if length < 0 or end > len(self._data):
            raise Truncated("the record is cut short")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken


class Writer:
    """Collects a record. Methods return the writer, so that a record can be written as one expression."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def int32(self, number: int) -> Writer:
        self._data += _INT32.pack(number)
        return self

    def int64(self, number: int) -> Writer:
        self._data += _INT64.pack(number)
        return self

    def boolean(self, truth: bool) -> Writer:
        self._data.append(truth)
        return self

    def buffer(self, data: bytes | None) -> Writer:
        if data is None:
            return self.int32(-1)
        self._data += _INT32.pack(len(data))
        self._data += data
        return self

    def string(self, text: str) -> Writer:
        return self.buffer(text.encode("utf-8", "replace"))

    def strings(self, texts: tuple[str, ...]) -> Writer:
        self.int32(len(texts))
        for text in texts:
            self.string(text)
        return self

    def acl(self, acl: tuple[Acl, ...]) -> Writer:
        self.int32(len(acl))
        for entry in acl:
            self.int32(entry.permissions).string(entry.identity.scheme).string(entry.identity.id)
        return self

    def stat(self, stat: Stat) -> Writer:
        self._data += _STAT.pack(
            stat.czxid,
            stat.mzxid,
            stat.ctime,
            stat.mtime,
            stat.version,
            stat.cversion,
            stat.aversion,
            stat.ephemeral_owner,
            stat.data_length,
            stat.num_children,
            stat.pzxid,
        )
        return self

    def finish(self) -> bytes:
        return bytes(self._data)

    def frame(self) -> bytes:
        """The record with its length before it."""
        return _INT32.pack(len(self._data)) + self._data
