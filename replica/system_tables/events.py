"""system.events: what the server has counted since its start."""

from __future__ import annotations

from replica.profile_events import DESCRIPTIONS
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    event String
    value UInt64
    description String
    name String
""")


async def _rows(asked: Asked) -> list[Row]:
    return [
        {"event": str(event), "value": count, "description": DESCRIPTIONS[event], "name": str(event)}
        for event, count in asked.share.events
    ]


EVENTS = SystemTable(_COLUMNS, _rows)
