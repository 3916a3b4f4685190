"""system.metrics: what stands at some height on the server at this moment."""

from __future__ import annotations

from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    metric String
    value Int64
    description String
    name String
""")

_HIGHEST_NUMBER = "MaxAllocatedEphemeralLockSequentialNumber"


async def _rows(asked: Asked) -> list[Row]:
    return [
        {
            "metric": _HIGHEST_NUMBER,
            "value": asked.share.metrics.max_allocated_ephemeral_lock_sequential_number,
            "description": "The highest block number that an insert has taken; 2147483647 is the last one there is.",
            "name": _HIGHEST_NUMBER,
        }
    ]


METRICS = SystemTable(_COLUMNS, _rows)
