"""A registered replica in which nothing runs by itself: a test calls one moving part of it at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from coordinator.api import Operation, Result
from coordinator.local_client import LocalCoordinator
from replica.dedup.tokens import SourceToken
from replica.environment import Environment
from replica.insert.piece import Piece
from replica.insert.sink import prepare_block
from replica.log_entry import EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.merge_assigner import MergeAssigner
from replica.part_name import PartName
from replica.pools import Pools
from replica.session import ServerSession, SessionKeeper, open_server_session
from replica.stored_table import ServerShare
from replica.system_tables import Asked, scan_system_table
from replica.table import ReplicatedTable
from replica.table_state import TableState
from replica.znodes import Host
from replica.zookeeper_log import ZooKeeperLog
from tests.replica.cluster import Cluster, definition, rows

HOST = Host("r", 9009, 0, "default", "t")


@dataclass
class IdleReplica:
    """A table of one server, with the server's session."""

    table: ReplicatedTable
    session: ServerSession
    environment: Environment
    coordinator: LocalCoordinator

    @property
    def state(self) -> TableState:
        return self.table.state

    async def later_session(self) -> ServerSession:
        """What this very server would have after its session is lost, though that still lives."""
        return await open_server_session(
            self.environment.coordinator, self.state.server.server_uuid, ZooKeeperLog(self.environment.clock)
        )

    def after(self, method: str, effect: Callable[[], Awaitable[object]]) -> None:
        """Let something happen right after the next call of a method of the session."""
        real = getattr(self.session, method)

        async def called(*arguments: Any, **options: Any) -> Any:
            setattr(self.session, method, real)
            result = await real(*arguments, **options)
            await effect()
            return result

        setattr(self.session, method, called)

    def before(self, method: str, effect: Callable[[], Awaitable[object]]) -> None:
        """Let something happen right before the next call of a method of the session."""
        real = getattr(self.session, method)

        async def called(*arguments: Any, **options: Any) -> Any:
            setattr(self.session, method, real)
            await effect()
            return await real(*arguments, **options)

        setattr(self.session, method, called)

    def recorded_multis(self) -> list[list[Operation]]:
        """The multis that the session sends from now on."""
        sent: list[list[Operation]] = []
        real = self.session.multi

        async def multi(operations: Any) -> list[Result]:
            sent.append(list(operations))
            return await real(operations)

        self.session.multi = multi  # type: ignore[method-assign]
        return sent


@contextlib.asynccontextmanager
async def idle_replica(
    cluster: Cluster,
    name: str,
    *,
    operation_timeout_seconds: float = 5.0,
    settings: dict[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[IdleReplica]:
    """Registered, its disk read, its session alive; neither active nor with a queue."""
    coordinator = cluster.coordinator(name, operation_timeout_seconds)
    environment = replace(cluster.environment(name, coordinator), **changes)
    sessions = SessionKeeper(environment.coordinator, f"uuid-of-{name}", ZooKeeperLog(environment.clock))
    share = ServerShare(environment, cluster.settings, sessions, Pools(cluster.settings), f"uuid-of-{name}")
    table = ReplicatedTable(share, definition(uuid="u", settings=settings or {}), {"shard": "01", "replica": name})
    keeper = asyncio.create_task(sessions.run())
    try:
        session = await sessions.live()
        await table.register()
        await table.load()
        yield IdleReplica(table, session, environment, coordinator)
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


def activate(state: TableState, session: ServerSession) -> None:
    """Writable from now on, with nobody who pulls, executes or assigns."""
    puller = LogPuller(state, session)
    state.become_active(session, MergeAssigner(state, session, puller), puller)


def fetch_of(part: str, create_time: int = 1000) -> LogEntry:
    return LogEntry(EntryType.GET_PART, create_time, "r9", new_part=PartName.parse(part))


def piece_of(state: TableState, *keys: int) -> Piece:
    """The one piece that these rows of one partition make."""
    block = rows(*keys)
    token = SourceToken(block.num_rows)
    (piece,) = prepare_block(state.structure, state.environment.codec, [token], block, deduplicated=True).pieces
    return piece


async def system_rows(replica: IdleReplica, table: str) -> list[dict[str, Any]]:
    """The rows of a system table, as the replica's server would give them."""
    share = replica.state.server
    return (await scan_system_table(table, Asked(replica.state.znodes.name, {}, share, [replica.state]))).to_pylist()
