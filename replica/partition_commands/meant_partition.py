"""The partition that a statement means."""

from __future__ import annotations

from replica.errors import BadArguments, InvalidPartitionValue
from replica.partition_id import check_partition_id
from replica.table_state import TableState


def meant_partition(state: TableState, value: str, partition_id: str) -> str | None:
    """The id, of a value's text or given as it is; None when neither is: every partition is meant.

    Raises InvalidPartitionValue for what cannot be an id, and for values what `PartitionKey.id_of` raises.
    """
    if value:
        return state.structure.partition_key.id_of(value)
    if not partition_id:
        return None
    try:
        return check_partition_id(partition_id)
    except BadArguments:
        raise InvalidPartitionValue(f"Invalid partition format: {partition_id[:100]}") from None


def one_partition(state: TableState, value: str, partition_id: str) -> str:
    """As `meant_partition`, where every partition cannot be meant. Raises BadArguments then."""
    meant = meant_partition(state, value, partition_id)
    if meant is None:
        raise BadArguments("Name one partition: PARTITION and its value, or PARTITION ID and its id")
    return meant
