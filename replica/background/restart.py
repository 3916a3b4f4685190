"""Makes a replica active under each new session, and read-only in between.

ClickHouse: ReplicatedMergeTreeRestartingThread.cpp. The order matters: `is_active` first, because cleaners
respect the log pointer of active replicas only; then the queue from its znodes; then the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.api import CoordinationError, Create, MultiFailed, NodeExists, NoNode, Set, Watch
from replica.background.attach import fetch_missing_parts
from replica.background.cleanup import clean_up
from replica.background.lost_replica import clone_if_lost
from replica.background.part_check import check_parts
from replica.background.taken_place import TakenPlace
from replica.background.uncertain_parts import settle_uncertain_parts
from replica.errors import ClickHouseError, LogicalError, ReplicaIsAlreadyActive
from replica.executor import Executor
from replica.log_entry import LogEntry
from replica.log_puller import LogPuller
from replica.merge_assigner import MergeAssigner
from replica.part_name import PartName
from replica.restoration import attach_restored_parts, check_registered
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import Host

log = logging.getLogger(__name__)

LONGEST_RETRY_SECONDS = 10.0


async def keep_active(state: TableState, host: Host, identifier: str) -> None:
    """Activate under every session of the server, until cancelled.

    `identifier` names this process in `is_active`, so that a restart within it knows its own left-over.
    """
    retry_seconds = 0.5
    place = TakenPlace(state.znodes)
    while True:
        session = await state.server.sessions.live()
        try:
            puller = await _activate(state, session, host, identifier)
        except LogicalError:
            raise
        except ReplicaIsAlreadyActive:
            await _wait_for_place(state, session, place)
            continue
        except (ClickHouseError, CoordinationError, OSError) as problem:
            state.become_readonly(str(problem))
            log.warning("%s stays read-only: %s", state.full_name, problem)
            await asyncio.sleep(retry_seconds)
            retry_seconds = min(2 * retry_seconds, LONGEST_RETRY_SECONDS)
            continue
        retry_seconds = 0.5
        await _work_until_lost(state, session, puller)
        state.become_readonly("its session was lost" if not session.alive else "its znodes are gone")


async def _wait_for_place(state: TableState, session: ServerSession, place: TakenPlace) -> None:
    """Read-only with the reason and how long it may take, until `is_active` goes, or it is time to look again."""
    watch = Watch()
    try:
        stat = await session.exists(state.znodes.is_active, watch)
    except CoordinationError:
        return  # the session is over: the next one will see
    if stat is None:
        return
    state.become_readonly(place.reason(stat.ephemeral_owner, state.now(), session.timeout_seconds))
    log.warning("%s stays read-only: %s", state.full_name, state.readonly_reason)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_RETRY_SECONDS):
            await watch.wait()


async def _activate(state: TableState, session: ServerSession, host: Host, identifier: str) -> LogPuller:
    await check_registered(session, state.znodes, state.full_name)
    await _announce(state, session, host, identifier)
    await clone_if_lost(state, session)
    await _load_queue(state, session)
    await fetch_missing_parts(state, session)
    puller = LogPuller(state, session)
    await puller.pull()
    return puller


async def _announce(state: TableState, session: ServerSession, host: Host, identifier: str) -> None:
    """Make `is_active`, which lives as long as the session, and say where this replica is reached."""
    znodes = state.znodes
    try:
        value, _ = await session.get(znodes.is_active)
        if value.decode("utf-8", "replace") == identifier:
            await session.delete(znodes.is_active)
    except NoNode:
        pass
    try:
        await session.multi_checked(
            [Create(znodes.is_active, identifier.encode(), ephemeral=True), Set(znodes.host, host.to_text().encode())]
        )
    except MultiFailed as failure:
        if isinstance(failure.error, NodeExists):
            raise ReplicaIsAlreadyActive(f"Replica {znodes.root} appears to be already active") from failure
        raise failure.error from failure


async def _load_queue(state: TableState, session: ServerSession) -> None:
    """Build the queue in memory anew, from the znodes of parts and queue; the disk has no say in it."""
    znodes = state.znodes
    parts = [PartName.parse(name) for name in await session.children(znodes.parts)]
    names = await session.children(znodes.queue)
    found = await session.get_many([znodes.queue_entry(name) for name in names])
    state.queue.initialize(parts)
    for name, answer in zip(names, found, strict=True):
        if answer is not None:
            state.queue.insert(name, LogEntry.from_znode(*answer))
    earliest = str(state.queue.min_unprocessed_insert_time).encode()
    if (await session.get(znodes.min_unprocessed_insert_time))[0] not in (earliest, b""):
        await session.set(znodes.min_unprocessed_insert_time, earliest)
    await state.note_progress()


async def _work_until_lost(state: TableState, session: ServerSession, puller: LogPuller) -> None:
    assigner = MergeAssigner(state, session, puller)
    state.become_active(session, assigner, puller)
    log.info("%s is active", state.full_name)
    tasks = (
        Executor(state, session).run(),
        assigner.run(),
        clean_up(state, session),
        settle_uncertain_parts(state, session),
        attach_restored_parts(state, session),
        check_parts(state, session, puller),
    )
    async with asyncio.TaskGroup() as group:
        pulling, dead = group.create_task(puller.run()), group.create_task(session.wait_dead())
        running = [pulling, dead, *(group.create_task(task) for task in tasks)]
        await asyncio.wait([pulling, dead], return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
