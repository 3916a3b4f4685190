"""From a partition command to what carries it out."""

from __future__ import annotations

from replica.commands import (
    AttachPartition,
    DropDetached,
    DropPart,
    DropPartition,
    ForgetPartition,
    MovePartition,
    PartitionCommand,
    ReplacePartition,
)
from replica.partition_commands.attach import attach_partition
from replica.partition_commands.drop_detached import drop_detached
from replica.partition_commands.drop_part import drop_part
from replica.partition_commands.drop_partition import drop_partition
from replica.partition_commands.forget_partition import forget_partition
from replica.partition_commands.move_partition import move_partition
from replica.partition_commands.replace_partition import replace_partition
from replica.table_state import TableState


async def carry_out(state: TableState, command: PartitionCommand) -> None:
    """Do what the command asks of the table, and wait as it says. Raises ClickHouseError and CoordinationError."""
    match command:
        case DropPartition():
            await drop_partition(state, command)
        case DropPart():
            await drop_part(state, command)
        case AttachPartition():
            await attach_partition(state, command)
        case DropDetached():
            await drop_detached(state, command)
        case ForgetPartition():
            await forget_partition(state, command)
        case ReplacePartition():
            await replace_partition(state, command)
        case MovePartition():
            await move_partition(state, command)
