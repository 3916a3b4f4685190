"""The port of the coordination service: what a client of it may ask, and what it may be told.

Two adapters implement it: `coordinator.kazoo_client` (over TCP, to our own server, ZooKeeper or Keeper) and
`coordinator.local_client` (in process, for the simulation). One contract suite holds both to the promises
made here.

Promises that are easy to overlook:

* A session is dead for ever at its first loss of connection or at its expiry. Nothing queued on it is ever
  sent under a later session; a new `Coordinator.connect()` gives a new one.
* A request pending when its session dies raises `SessionLost`. It may have been applied, may still be
  applied until the service has expired the session, or may never be.
* A watch fires at most once, with `WatchOutcome.CHANGED` or, when its session died first, `LOST`.
* No order is promised between a reply and a watch event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Stat:
    """The bookkeeping of one znode; times in milliseconds since 1970, zxids as the service counts them."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


# --- operations of a multi -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. A sequential one gets ten digits appended to its path; the result is the final path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a childless znode whose data version is `version` (-1: any)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a znode's data if its data version is `version` (-1: any). The result is the new `Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Succeed if the znode exists with data version `version` (-1: any); change nothing."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CheckNotExists:
    """Succeed if there is no such znode, else `NodeExists`; change nothing.

    Keeper's operation 501 on a service that announces it under `/keeper`; elsewhere a create and a delete in
    the same multi, with the failed index mapped back to the caller's.
    """

    path: str


Operation = Create | Delete | Set | Check | CheckNotExists
Result = str | Stat | None


# --- errors --------------------------------------------------------------------------------------------------


class CoordinationError(Exception):
    """Anything that the coordination service, or the way to it, can answer instead of a result."""


class CoordinatorUnreachable(CoordinationError):
    """No session could be made: nobody answers at the address, or the handshake was refused."""


class SessionLost(CoordinationError):
    """The session died with this request pending or before it; whether a write was applied is unknown."""


class RequestRefused(CoordinationError):
    """The service answered, and the answer is no; nothing was changed. `path` names the znode."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{self.meaning}: {path}")
        self.path = path

    meaning = "request refused"


class NoNode(RequestRefused):
    meaning = "no such znode"


class NodeExists(RequestRefused):
    meaning = "znode exists already"


class BadVersion(RequestRefused):
    meaning = "znode has another version"


class NotEmpty(RequestRefused):
    meaning = "znode has children"


class NoChildrenForEphemerals(RequestRefused):
    meaning = "an ephemeral znode cannot have children"


class BadArguments(RequestRefused):
    meaning = "malformed request"


class NoAuth(RequestRefused):
    meaning = "not permitted"


class MultiFailed(CoordinationError):
    """A multi was refused whole. `index` is the position of the failing operation, `error` why it failed."""

    def __init__(self, index: int, error: RequestRefused) -> None:
        super().__init__(f"operation {index} of a multi failed: {error}")
        self.index = index
        self.error = error


# --- watches -------------------------------------------------------------------------------------------------


class WatchOutcome(Enum):
    CHANGED = "changed"
    LOST = "lost"


class Watch:
    """One wait for one change. Hand it to one read; the adapter resolves it at most once."""

    def __init__(self) -> None:
        self._outcome: asyncio.Future[WatchOutcome] = asyncio.get_running_loop().create_future()

    def resolve(self, outcome: WatchOutcome) -> None:
        """Called by an adapter, on the event loop; only the first call counts."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def wait(self) -> WatchOutcome:
        """Wait for the change (or the loss); safe to call again and to cancel."""
        return await asyncio.shield(self._outcome)


# --- the port ------------------------------------------------------------------------------------------------


class Session(Protocol):
    """A live session. Every method raises `SessionLost` once the session is dead."""

    @property
    def session_id(self) -> int: ...

    @property
    def alive(self) -> bool:
        """False from the moment the client knows that the session is dead."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """How long the service keeps the session, and its ephemerals, when it hears nothing of the client."""
        ...

    async def wait_dead(self) -> None:
        """Return when the session is dead (closed, disconnected or expired)."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The final path. Raises NodeExists, NoNode (of the parent), NoChildrenForEphemerals."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Raises NoNode, BadVersion."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data and stat; the watch is set only if the znode exists. Raises NoNode."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The same for many znodes, pipelined; None where there is none. Not a snapshot."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The stat, or None; the watch is set in either case."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted; the watch is set only if the znode exists. Raises NoNode."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All or nothing; one result per operation. Raises MultiFailed."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral znodes go at once. Never raises."""
        ...


class Coordinator(Protocol):
    """Where sessions come from."""

    async def connect(self) -> Session:
        """A new session. Raises CoordinatorUnreachable."""
        ...
