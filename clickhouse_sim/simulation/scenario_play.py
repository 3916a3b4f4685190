"""Plays a scenario in the simulated world, in asyncio's own order of events, and tells it line by line."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from clickhouse_sim.simulation.client import SimulatedClient
from clickhouse_sim.simulation.cluster import SimulatedCluster
from clickhouse_sim.simulation.errors import ScenarioError
from clickhouse_sim.simulation.insert_workload import block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.followed import FollowedProperties
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.scenario import Scenario, Step
from clickhouse_sim.simulation.standard_table import DEFINITION, TABLE
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.sql.optimize import Optimization
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import Command, CreateTable, InsertOptions, InsertStatus
from replica.errors import ClickHouseError, NetworkError
from replica.server import DEFAULT_DATABASE

EXPECTED = "what the scenario expects"
_LONGEST_WAIT_SECONDS = 3600
_TOLD = frozenset(
    {Mark.LOG_WRITTEN, Mark.CONFLICT, Mark.LOST, Mark.CLONED, Mark.PART_REGISTERED, Mark.SESSION_EXPIRED}
)
# How the multis of a replica begin.
_MULTIS = {"commit": "Create,Delete", "block number": "CheckNotExists,Create", "pull": "Create,SetData"}
_STATUS = {
    InsertStatus.STORED: "stored",
    InsertStatus.DUPLICATE: "duplicate",
    InsertStatus.NOT_STORED: "not stored",
    InsertStatus.UNKNOWN: "unknown",
}


def play_scenario(scenario: Scenario, tell: Callable[[str], None], recording: Recording, tape: Tape) -> None:
    """Play it; `tell` gets the transcript line by line.

    Raises PropertyBroken, for an expectation too, ScenarioError for SQL that cannot be read, and SimulationError.
    """
    run(_Play(scenario, tell, recording, tape).run(), tape)


class _Play:
    def __init__(self, scenario: Scenario, tell: Callable[[str], None], recording: Recording, tape: Tape) -> None:
        self._scenario = scenario
        self._tell = tell
        self._recording = recording
        self._tape = tape
        self._told = 0
        self._begun: dict[str, asyncio.Task[str]] = {}
        self._followed = FollowedProperties(TABLE)
        self._commands = {step.line: _commands(step) for step in scenario.steps if "sql" in step.values}
        self._definition = _definition(scenario)

    async def run(self) -> None:
        scenario = self._scenario
        self._cluster = SimulatedCluster(
            self._tape, scenario.replicas, "t", TABLE, recording=self._recording, follow=self._followed.follow
        )
        self._session = await self._cluster.observer()
        operator = self._cluster.client("operator")
        for name in scenario.replicas:
            await operator.execute(name, self._definition)
        await self._everything_is_done()
        self._told = len(self._recording.events)
        self._tell(scenario.title)
        for step in scenario.steps:
            outcome = await self._take(step)
            self._tell(f"  {step.text.partition(' -> ')[0]}{f'  -> {outcome}' if outcome else ''}")
            self._tell_events()
            if self._followed.broken is not None:
                raise self._followed.broken
            if step.expected and outcome.partition(" (")[0] != step.expected:
                raise PropertyBroken(EXPECTED, f"line {step.line}: {step.text!r}, but it was {outcome}")
        await self._session.close()

    def _tell_events(self) -> None:
        """What the protocol did meanwhile."""
        for event in self._recording.events[self._told :]:
            if event.mark in _TOLD and event.who not in ("checker", "operator"):
                self._tell(f"      {event.mark.value} {event.who}  {event.what}")
        self._told = len(self._recording.events)

    # --- steps -----------------------------------------------------------------------------------------------

    async def _take(self, step: Step) -> str:
        if step.kind == "insert":
            return await self._insert(step)
        if step.kind in ("begin", "begin asking"):
            begun = self._insert(step) if step.kind == "begin" else self._ask(step)
            self._begun[step.values["who"]] = asyncio.create_task(begun)
            return ""
        if step.kind == "answer":
            return await self._answer(step)
        if step.kind == "ask":
            return await self._ask(step)
        if step.kind in ("wait", "quiet"):
            await self._wait(step)
        elif step.kind in _EXPECTATIONS:
            problem = await _EXPECTATIONS[step.kind](self, step)
            if problem:
                raise PropertyBroken(EXPECTED, f"line {step.line}: {step.text!r}, but {problem}")
        else:
            self._fault(step)
        return ""

    def _fault(self, step: Step) -> None:
        world, network = self._cluster.world, self._cluster.world.network
        who, other = step.values.get("who", ""), step.values.get("other", "")
        match step.kind:
            case "crash" | "power":
                world.crash(who, lose_unsynced=step.kind == "power")
            case "start":
                self._cluster.start(who)
            case "pause":
                world.pause(who)
            case "resume":
                world.resume(who)
            case "cut":
                network.cut(who, other)
            case "heal":
                network.heal(who, other)
            case "lose reply":
                network.lose_next_reply(who, _MULTIS[step.values["multi"]])
            case "lose replies":
                network.lose_multi_replies(who)
            case "lose requests":
                network.lose_multi_requests(who)
            case "deliver":
                network.deliver_multis(who)
            case "restart":
                world.service.restart()
            case "expire":
                for session_id in world.service.sessions_of(who):
                    world.service.expire(session_id)

    async def _insert(self, step: Step) -> str:
        client, options = self._client(step), InsertOptions()
        if "token" in step.values:
            options = replace(options, insert_deduplication_token=step.values["token"])
        try:
            outcome = await client.insert(step.values["replica"], "t", options, block_of(int(step.values["block"])))
        except NetworkError:
            return "unknown"
        except ClickHouseError as problem:
            return f"refused ({problem.name})"
        parts = ", ".join(part.part_name for part in outcome.parts if part.part_name)
        return _STATUS[outcome.status] + (f" ({parts})" if parts else "")

    async def _answer(self, step: Step) -> str:
        """To what the client began last."""
        try:
            return await self._begun.pop(step.values["who"])
        except KeyError:
            raise ScenarioError(f"line {step.line}: {step.values['who']} has begun nothing") from None

    async def _ask(self, step: Step) -> str:
        try:
            for command in self._commands[step.line]:
                await self._client(step).execute(step.values["replica"], command)
        except NetworkError:
            return "unknown"
        except ClickHouseError as problem:
            return f"refused ({problem.name})"
        return "done"

    async def _wait(self, step: Step) -> None:
        if step.kind == "quiet":
            await self._everything_is_done()
        else:
            await asyncio.sleep(float(step.values["seconds"]))

    async def _everything_is_done(self) -> None:
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                while not await self._cluster.is_quiet(self._session):
                    await asyncio.sleep(1)
        except TimeoutError:
            raise PropertyBroken(EXPECTED, f"not everything is done after {_LONGEST_WAIT_SECONDS} s") from None

    def _client(self, step: Step) -> SimulatedClient:
        return self._cluster.client(step.values["who"])

    # --- expectations: what is wrong, empty if nothing is --------------------------------------------------------

    async def _once(self, step: Step) -> str:
        wanted = 0 if step.kind == "not there" else 1
        for name in step.values["names"].split():
            rows = await self._cluster.server(name).scan(DEFAULT_DATABASE, "t")
            copies = Counter(rows.column("k").to_pylist())
            found = [copies[key] for key in block_of(int(step.values["block"])).column("k").to_pylist()]
            if set(found) != {wanted}:
                return f"{name} has its rows {found} times"
        return ""

    async def _parts(self, step: Step) -> str:
        rows = (await self._cluster.server(step.values["who"]).scan("system", "parts")).to_pylist()
        active = sorted(row["name"] for row in rows if row["active"])
        return "" if active == sorted(step.values["parts"].split()) else f"it has {' '.join(active) or 'none'}"

    async def _queue(self, step: Step) -> str:
        waiting = await self._session.children(TABLE.replica(step.values["who"]).queue)
        return "" if len(waiting) == int(step.values["count"]) else f"it has {len(waiting)}"

    async def _writable(self, step: Step) -> str:
        (row,) = (await self._cluster.server(step.values["who"]).scan("system", "replicas")).to_pylist()
        return "" if bool(row["is_readonly"]) == (step.kind == "readonly") else "it is not"


_EXPECTATIONS: dict[str, Callable[[_Play, Step], Awaitable[str]]] = {
    "once": _Play._once,
    "not there": _Play._once,
    "parts": _Play._parts,
    "queue": _Play._queue,
    "readonly": _Play._writable,
    "writable": _Play._writable,
}


def _commands(step: Step) -> list[Command]:
    """What the SQL of a step asks of a server."""
    commands: list[Command] = []
    try:
        for statement in parse_statements(step.values["sql"]):
            command = statement.command if isinstance(statement, Optimization) else statement
            if not isinstance(command, Command):
                raise ScenarioError(f"line {step.line}: a scenario asks with commands; rows are inserted as blocks")
            commands.append(command)
    except ClickHouseError as problem:
        raise ScenarioError(f"line {step.line}: {problem.message}") from problem
    return commands


def _definition(scenario: Scenario) -> CreateTable:
    if not scenario.create_table:
        return DEFINITION
    try:
        (statement,) = parse_statements(scenario.create_table)
    except (ClickHouseError, ValueError) as problem:
        raise ScenarioError(f"the CREATE TABLE of the scenario cannot be read: {problem}") from problem
    assert isinstance(statement, CreateTable)
    if (statement.table, statement.zookeeper_path) != ("t", DEFINITION.zookeeper_path):
        raise ScenarioError(f"the table of a scenario is called t and lies at {DEFINITION.zookeeper_path}")
    return statement
