"""What the znodes tell by themselves: the tables there are, their shared logs, and the queues of their replicas.

This is all there is to know of a replica that does not run; how often it tried an entry, and why it waited, was in
its memory only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from coordinator.api import CoordinatorUnreachable, NoNode, Session, Stat
from coordinator.kazoo_client import KazooCoordinator
from replica.errors import ClickHouseError
from replica.log_entry import EntryType, LogEntry

T = TypeVar("T")

CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 1.0

_MARKS_OF_A_TABLE = frozenset(("log", "metadata", "replicas"))
_NOT_OURS = frozenset(("/zookeeper", "/keeper"))


@dataclass(frozen=True, slots=True)
class Znode:
    path: str
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """An entry of a log or a queue; `problem` says why `entry` is None."""

    znode: str
    entry: LogEntry | None
    problem: str = ""

    @property
    def type(self) -> str:
        return self.entry.type.value if self.entry else ""

    @property
    def new_part(self) -> str:
        return str(self.entry.new_part) if self.entry and self.entry.new_part else ""

    @property
    def detail(self) -> str:
        """What the type alone does not say."""
        if self.entry is None:
            return self.problem
        match self.entry.type:
            case EntryType.MERGE_PARTS | EntryType.MUTATE_PART:
                return "from " + ", ".join(str(part) for part in self.entry.source_parts)
            case EntryType.GET_PART | EntryType.ATTACH_PART:
                return f"block {self.entry.block_id}" if self.entry.block_id else ""
            case EntryType.DROP_RANGE if self.entry.is_detach:
                return "detach"
            case EntryType.ALTER_METADATA:
                return f"alter version {self.entry.alter_version}"
        return ""


def with_session(
    address: str, work: Callable[[Session], Awaitable[T]], seconds: float = CONNECT_SECONDS, *, bounded: bool = False
) -> T:
    """Do the work in a session of its own.

    `seconds` bound the connecting, and where it is `bounded` all of the work. Raises CoordinatorUnreachable.
    """

    async def run() -> T:
        session = await KazooCoordinator(address, connect_timeout_seconds=seconds).connect()
        try:
            async with asyncio.timeout(seconds if bounded else None):
                return await work(session)
        except TimeoutError:
            raise CoordinatorUnreachable(f"{address}: no answer in {seconds:g} s") from None
        finally:
            await _closed(session)

    return asyncio.run(run())


async def _closed(session: Session) -> None:
    """End the session, without patience for a service that no longer answers: it gives the session up by itself."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(session.close(), _CLOSE_SECONDS)


async def tables(session: Session) -> list[str]:
    """The paths of all replicated tables, sorted."""
    found: list[str] = []
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        names = await children(session, path)
        if _MARKS_OF_A_TABLE.issubset(names):
            found.append(path)
        else:
            waiting += [child for name in names if (child := _join(path, name)) not in _NOT_OURS]
    return sorted(found)


async def replicas(session: Session, table_path: str) -> list[str]:
    return await children(session, f"{table_path}/replicas")


async def entries(session: Session, folder: str) -> list[DecodedEntry]:
    """The entries below a `log` or `queue` znode, in order."""
    names = await children(session, folder)
    found = await session.get_many([f"{folder}/{name}" for name in names])
    return [_decoded(name, *node) for name, node in zip(names, found, strict=True) if node is not None]


async def queue_length(session: Session, table_path: str, replica: str) -> int:
    """How many entries wait in the replica's queue."""
    return len(await children(session, f"{table_path}/replicas/{replica}/queue"))


async def unheard(session: Session, table_path: str, replica: str) -> int:
    """How many entries of the shared log the replica has not copied into its queue."""
    found = (await session.get_many([f"{table_path}/replicas/{replica}/log_pointer"]))[0]
    pointer = int(found[0] or b"0") if found is not None else 0
    names = await children(session, f"{table_path}/log")
    return sum(int(name.removeprefix("log-")) >= pointer for name in names)


async def is_waited_for(session: Session, table_path: str, replica: str) -> bool:
    """Whether the log keeps what this replica has not copied although it is away: it is not marked lost yet."""
    root = f"{table_path}/replicas/{replica}"
    is_active, is_lost = await session.get_many([f"{root}/is_active", f"{root}/is_lost"])
    return is_active is None and is_lost is not None and is_lost[0] != b"1"


async def subtree(session: Session, path: str, depth: int) -> list[Znode]:
    """The znode and those up to `depth` levels below it, each before its children. Raises NoNode for `path`."""
    data, stat = await session.get(path)
    found = [Znode(path, data, stat)]
    if depth > 0:
        for name in await children(session, path):
            try:
                found += await subtree(session, _join(path, name), depth - 1)
            except NoNode:
                continue  # it went away since its parent was listed
    return found


async def children(session: Session, path: str) -> list[str]:
    """Their names, sorted; none of a znode that is not there."""
    try:
        return await session.children(path)
    except NoNode:
        return []


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _decoded(name: str, data: bytes, stat: Stat) -> DecodedEntry:
    try:
        return DecodedEntry(name, LogEntry.parse(data.decode(), znode_ctime_ms=stat.ctime))
    except (ClickHouseError, UnicodeDecodeError) as problem:
        return DecodedEntry(name, None, str(problem))
