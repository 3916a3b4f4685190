"""A multi as a record that kazoo sends and reads: its own transaction misreads results it has no record for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kazoo.exceptions import KazooException

from coordinator import api
from coordinator.access import OPEN_TO_ALL
from coordinator.api import ANY_VERSION, Operation, Result
from coordinator.jute import Reader, Writer
from coordinator.requests import CreateFlag, ErrorCode


@dataclass(frozen=True, slots=True)
class MultiFailure:
    """A refused multi: which operation was at fault, as counted on the wire, and with which error number."""

    position: int
    code: int


class MultiRecord:
    """A multi in the form in which kazoo sends requests and reads answers."""

    type = 14

    def __init__(self, operations: Sequence[Operation], full_path: Callable[[str], str]) -> None:
        self._operations = operations
        self._full_path = full_path

    def serialize(self) -> bytes:
        writer = Writer()
        for operation in self._operations:
            _write_operation(writer, operation, self._full_path(operation.path))
        return writer.int32(-1).boolean(True).int32(-1).finish()

    def deserialize(self, data: bytes, offset: int) -> list[list[Result] | MultiFailure]:
        """The outcome, in a list: kazoo goes through whatever a multi's answer is read as."""
        reader = Reader(data, offset)
        results: list[Result] = []
        failure: MultiFailure | None = None
        while True:
            kind, done, _ = reader.int32(), reader.boolean(), reader.int32()
            if done:
                return [results if failure is None else failure]
            if kind != -1:
                results.append(_read_result(kind, reader))
                continue
            code = reader.int32()
            if failure is None and code not in (ErrorCode.OK, ErrorCode.RUNTIME_INCONSISTENCY):
                failure = MultiFailure(len(results), code)
            results.append(None)


def as_sent(operations: Sequence[Operation], knows_check_not_exists: bool) -> tuple[list[Operation], list[int]]:
    """The operations that a service without CheckNotExists understands, each with the index it came from."""
    sent: list[Operation] = []
    origins: list[int] = []
    for index, operation in enumerate(operations):
        if isinstance(operation, api.CheckNotExists) and not knows_check_not_exists:
            sent += [api.Create(operation.path), api.Delete(operation.path)]
            origins += [index, index]
        else:
            sent.append(operation)
            origins.append(index)
    return sent, origins


def _write_operation(writer: Writer, operation: Operation, path: str) -> None:
    match operation:
        case api.Create(_, data, ephemeral, sequential):
            flags = CreateFlag.EPHEMERAL * ephemeral | CreateFlag.SEQUENTIAL * sequential
            _write_header(writer, 1).string(path).buffer(data).acl(OPEN_TO_ALL).int32(flags)
        case api.Delete(_, version):
            _write_header(writer, 2).string(path).int32(version)
        case api.Set(_, data, version):
            _write_header(writer, 5).string(path).buffer(data).int32(version)
        case api.Check(_, version):
            _write_header(writer, 13).string(path).int32(version)
        case api.CheckNotExists():
            _write_header(writer, 501).string(path).int32(ANY_VERSION)


def _write_header(writer: Writer, kind: int) -> Writer:
    return writer.int32(kind).boolean(False).int32(-1)


def _read_result(kind: int, reader: Reader) -> Result:
    match kind:
        case 1:
            return reader.string()
        case 5:
            return reader.stat()
        case 2 | 13 | 501:
            return None
    raise KazooException(f"a multi's result of the unknown type {kind}")
