"""DROP DETACHED PARTITION and PART: removes folders from `detached/` of the server that is asked.

ClickHouse: MergeTreeData.cpp, `dropDetached`.
"""

from __future__ import annotations

from replica.commands import DropDetached
from replica.errors import SupportIsDisabled
from replica.partition_commands.meant_partition import meant_partition
from replica.storage.file_names import ATTACHING_PREFIX
from replica.table_state import TableState


async def drop_detached(state: TableState, command: DropDetached) -> None:
    """Remove one folder, or those of a partition for whatever reason they are there.

    Raises SupportIsDisabled unless it is allowed, IncorrectFileName, BadDataPartName for one that is not there.
    """
    if not command.allow_drop_detached:
        raise SupportIsDisabled("DROP DETACHED is disabled: add SETTINGS allow_drop_detached = 1")
    detached = state.store.detached
    if command.part:
        await detached.remove(command.part)
        return
    meant = meant_partition(state, command.partition, command.partition_id)
    for each in await detached.names():
        busy = each.folder.startswith((ATTACHING_PREFIX, "deleting_"))
        if each.part is not None and not busy and meant in (None, each.part.partition_id):
            await detached.remove(each.folder)
