"""GET_PART: download the part, or one that covers it, from another replica.

ClickHouse: StorageReplicatedMergeTree.cpp, `executeFetch`, `fetchPart`.
"""

from __future__ import annotations

from functools import partial

from coordinator.api import CoordinationError, NoNode
from replica.commands import Action
from replica.environment import PartRequest, shuffled
from replica.errors import BadArguments, ClickHouseError, NoReplicaHasPart, PartIsTemporarilyLocked
from replica.operations.commit_part import commit_part
from replica.operations.not_done import NotDone
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.running_operations import RunningFetch
from replica.session import ServerSession
from replica.storage.file_names import FETCH_PREFIX
from replica.storage.part_files import verified_part
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState
from replica.znodes import Host, ReplicaZnodes


async def get_part(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Fetch what the entry wants.

    Raises NoReplicaHasPart when no active replica has it, PartIsTemporarilyLocked when one of that name is on this
    disk of an insert that is not decided yet, and whatever the transfer or the commit raises. Raises NotDone when the
    part will come in another way or must wait for its turn: nobody has it but it goes into a merge that is queued, it
    is being fetched already, or an outdated one of that name has not been deleted yet.

    After every failure the other parts of that merge are put off: the merged one may then be fetched first.
    """
    wanted = queued.entry.new_part
    assert wanted is not None
    source = None
    try:
        source = await find_source(state, session, queued, wanted)
        if source is None:
            raise NoReplicaHasPart(
                f"No active replica has part {wanted} or covering part (cannot execute {queued.znode_name}: "
                f"{queued.entry.type} {wanted})"
            )
        replica, name = source
        host = await _address(state, session, replica, name)
        with state.running.fetch(name, replica, host) as fetch:
            await commit_part(state, session, await _download(state, fetch), name)
    except (ClickHouseError, CoordinationError, OSError) as problem:
        siblings = state.queue.move_siblings_to_tail(wanted)
        if source is None and isinstance(problem, NoReplicaHasPart):
            state.check_part(wanted)
        if source is None and siblings and isinstance(problem, NoReplicaHasPart):
            raise NotDone(f"No active replica has part {wanted}. Will fetch merged part instead") from problem
        raise


async def download(
    state: TableState, session: ServerSession, replica: ReplicaZnodes, name: PartName
) -> TemporaryPart:
    """A part of another replica, verified, without a name here. Raises as `get_part`."""
    host = await _address(state, session, replica, name)
    with state.running.fetch(name, replica, host) as fetch:
        return await _download(state, fetch)


async def exact_source(state: TableState, session: ServerSession, wanted: PartName) -> ReplicaZnodes | None:
    """Another active replica with exactly this part."""
    for replica in await _others(state, session):
        if await session.exists(replica.part(str(wanted))) and await session.exists(replica.is_active):
            return replica
    return None


async def find_source(
    state: TableState, session: ServerSession, queued: QueuedEntry, wanted: PartName
) -> tuple[ReplicaZnodes, PartName] | None:
    """An active replica with the part, or the largest part there that covers it and that the queue allows."""
    for replica in await _others(state, session):
        if await session.exists(replica.is_active) is None:
            continue
        found = await _largest_covering(session, replica, wanted)
        if found is None:
            continue
        if found != wanted and not await _may_take(state, queued, found):
            return None
        return replica, found
    return None


async def _others(state: TableState, session: ServerSession) -> list[ReplicaZnodes]:
    table = state.znodes.table
    names = [name for name in await session.children(table.replicas) if name != state.znodes.name]
    return [table.replica(name) for name in shuffled(state.environment.chance, "fetch source", names)]


async def _may_take(state: TableState, queued: QueuedEntry, covering: PartName) -> bool:
    """Whether the queue allows this bigger part instead; older entries that work below it are waited for."""
    if queued.removed_by_other_entry or state.queue.take_actual_part(queued, covering) is not None:
        return False
    below = state.queue.executing_below(queued, covering)
    await state.wait_for_progress(
        lambda: queued.removed_by_other_entry or not any(older.currently_executing for older in below)
    )
    return not queued.removed_by_other_entry


async def _largest_covering(session: ServerSession, replica: ReplicaZnodes, wanted: PartName) -> PartName | None:
    try:
        names = await session.children(replica.parts)
    except NoNode:
        return None
    largest: PartName | None = None
    for name in filter(None, map(PartName.try_parse, names)):
        if name.contains(largest or wanted):
            largest = name
    return largest


async def _address(state: TableState, session: ServerSession, replica: ReplicaZnodes, name: PartName) -> Host:
    """Where the replica is reached, if the part may be fetched now at all."""
    _check_free(state, name)
    state.blockers.check(Action.FETCHES)
    value, _ = await session.get(replica.host)
    try:
        return Host.parse(value.decode("utf-8", "replace"))
    except BadArguments as problem:
        raise NoReplicaHasPart(f"Replica {replica.name} has part {name} but no address: {problem}") from problem


def _check_free(state: TableState, name: PartName) -> None:
    """Whether a part of that name may be fetched now; raises PartIsTemporarilyLocked or NotDone."""
    if any(fetch.part == name for fetch in state.running.fetches):
        raise NotDone(f"Part {name} is being fetched already")
    if state.store.pre_active(name) is not None:
        raise PartIsTemporarilyLocked(f"Part {name} is on the disk of an insert that is not decided yet")
    if state.store.get(name) is not None:
        raise NotDone(f"Part {name} is still on the disk, outdated: it is to be deleted first")


async def _download(state: TableState, fetch: RunningFetch) -> TemporaryPart:
    environment, request = state.environment, PartRequest(fetch.replica.root, str(fetch.part))
    files = await environment.transfer.fetch(
        fetch.host.interserver_address, request, state.server.settings.replicated_fetches_timeout_seconds
    )
    job = partial(verified_part, files, environment.codec)
    fetch.image = image = await environment.workers.run("verify fetched part", job)
    state.blockers.check(Action.FETCHES)
    return await state.store.write_temporary(FETCH_PREFIX, image)
