"""An operator who now and again asks a replica for merges, holds, waits for, or restarts what runs on it, and alters
its settings."""

from __future__ import annotations

import asyncio

from clickhouse_sim.simulation.client import SimulatedClient
from coordinator.api import NoNode, NotEmpty, Session
from replica.commands import (
    Action,
    AlterSettings,
    Command,
    OptimizeTable,
    RestartReplica,
    RestoreReplica,
    SwitchAction,
    SyncMode,
    SyncReplica,
)
from replica.environment import Chance
from replica.errors import ClickHouseError
from replica.server import DEFAULT_DATABASE

_WAYS = (
    OptimizeTable(DEFAULT_DATABASE, "t"),
    OptimizeTable(DEFAULT_DATABASE, "t", partition="1"),
    OptimizeTable(DEFAULT_DATABASE, "t", final=True),
    OptimizeTable(DEFAULT_DATABASE, "t", partition_id="0", final=True, deduplicate=True),
    OptimizeTable(DEFAULT_DATABASE, "t", deduplicate=True, deduplicate_by=("k",)),
)

# Settings of which the promises of a table do not depend, with values that change who merges what, and when.
_SETTINGS = {
    "always_fetch_merged_part": "1",
    "prefer_fetch_merged_part_time_threshold": "0",
    "max_replicated_merges_in_queue": "1",
    "min_age_to_force_merge_seconds": "1",
}


async def optimize_now_and_again(
    client: SimulatedClient, chance: Chance, replicas: list[str], times: int, pause_seconds: int
) -> None:
    """So many OPTIMIZEs; that one fails, or its answer is lost, is nothing to worry about."""
    for _ in range(times):
        await asyncio.sleep(chance.choose("pause before OPTIMIZE", range(1, pause_seconds * 10)) / 10)
        command = chance.choose("way to OPTIMIZE", _WAYS)
        try:
            await client.execute(chance.choose("replica to OPTIMIZE", replicas), command)
        except ClickHouseError:
            continue


async def intervene_now_and_again(
    client: SimulatedClient, chance: Chance, replicas: list[str], times: int, pause_seconds: int
) -> None:
    """So many statements at drawn replicas; what was stopped or altered is put back later, if that arrives."""
    for _ in range(times):
        await _pause(chance, pause_seconds)
        replica = chance.choose("replica to intervene on", replicas)
        what = chance.choose("intervention", (Action, SyncMode, RestartReplica, AlterSettings))
        if what is Action:
            action = chance.choose("action to stop", tuple(Action))
            await _try(client, replica, SwitchAction(action, True, DEFAULT_DATABASE, "t"))
            await _pause(chance, pause_seconds)
            await _try(client, replica, SwitchAction(action, False, DEFAULT_DATABASE, "t"))
        elif what is SyncMode:
            await _try(
                client, replica, SyncReplica(DEFAULT_DATABASE, "t", chance.choose("way to sync", tuple(SyncMode)))
            )
        elif what is AlterSettings:
            name = chance.choose("setting to alter", tuple(_SETTINGS))
            await _try(client, replica, AlterSettings(DEFAULT_DATABASE, "t", {name: _SETTINGS[name]}))
            await _pause(chance, pause_seconds)
            await _try(client, replica, AlterSettings(DEFAULT_DATABASE, "t", reset=(name,)))
        else:
            await _try(client, replica, RestartReplica(DEFAULT_DATABASE, "t"))


async def let_everything_go(client: SimulatedClient, replicas: list[str]) -> None:
    """Start on each replica what may be stopped there, and reset what may be altered, until that is known."""
    commands: list[Command] = [SwitchAction(action, False, DEFAULT_DATABASE, "t") for action in Action]
    commands.append(AlterSettings(DEFAULT_DATABASE, "t", reset=tuple(_SETTINGS)))
    for replica in replicas:
        for command in commands:
            while not await _try(client, replica, command):
                await asyncio.sleep(1)


async def lose_tree(session: Session, root: str) -> None:
    """Remove the znode with all that is below it, whatever is made there meanwhile."""
    try:
        for name in await session.children(root):
            await lose_tree(session, f"{root}/{name}")
        await session.delete(root)
    except NoNode:
        return
    except NotEmpty:
        await lose_tree(session, root)


async def restore(client: SimulatedClient, replica: str, session: Session, path: str) -> None:
    """Ask for RESTORE REPLICA until the replica's znode at `path` is there; its parts may still be on their way."""
    while await session.exists(path) is None:
        await _try(client, replica, RestoreReplica(DEFAULT_DATABASE, "t"))
        await asyncio.sleep(1)


async def _pause(chance: Chance, longest_seconds: int) -> None:
    await asyncio.sleep(chance.choose("pause of the operator", range(1, longest_seconds * 10)) / 10)


async def _try(client: SimulatedClient, replica: str, command: Command) -> bool:
    """Whether it was answered as done."""
    try:
        await client.execute(replica, command)
    except ClickHouseError:
        return False
    return True
