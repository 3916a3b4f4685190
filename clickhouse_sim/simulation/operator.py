"""An operator who now and again asks a replica for merges, and holds, waits for, or restarts what runs on it."""

from __future__ import annotations

import asyncio

from clickhouse_sim.simulation.client import SimulatedClient
from replica.commands import Action, Command, OptimizeTable, RestartReplica, SwitchAction, SyncMode, SyncReplica
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
    """So many SYSTEM statements at drawn replicas; what was stopped is started after a while, if that arrives."""
    for _ in range(times):
        await _pause(chance, pause_seconds)
        replica = chance.choose("replica to intervene on", replicas)
        what = chance.choose("intervention", (Action, SyncMode, RestartReplica))
        if what is Action:
            action = chance.choose("action to stop", tuple(Action))
            await _try(client, replica, SwitchAction(action, True, DEFAULT_DATABASE, "t"))
            await _pause(chance, pause_seconds)
            await _try(client, replica, SwitchAction(action, False, DEFAULT_DATABASE, "t"))
        elif what is SyncMode:
            await _try(
                client, replica, SyncReplica(DEFAULT_DATABASE, "t", chance.choose("way to sync", tuple(SyncMode)))
            )
        else:
            await _try(client, replica, RestartReplica(DEFAULT_DATABASE, "t"))


async def start_everything(client: SimulatedClient, replicas: list[str]) -> None:
    """Start on each replica what may be stopped there, until it is known to be started."""
    for replica in replicas:
        for action in Action:
            while not await _try(client, replica, SwitchAction(action, False, DEFAULT_DATABASE, "t")):
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
