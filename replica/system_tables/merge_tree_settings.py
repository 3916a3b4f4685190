"""system.merge_tree_settings and system.replicated_merge_tree_settings: what a table has that says nothing else.

Settings of one table stand in its CREATE statement. A server has no configuration of its own for them here, so both
tables tell the defaults.
"""

from __future__ import annotations

from replica.settings import SETTINGS
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    name String
    value String
    default String
    changed UInt8
    description String
    min Nullable(String)
    max Nullable(String)
    disallowed_values Array(String)
    readonly UInt8
    type String
    is_obsolete UInt8
    tier Enum8(Production, Experimental)
""")


async def _rows(asked: Asked) -> list[Row]:
    return [
        {
            "name": each.name,
            "value": str(each.default),
            "default": str(each.default),
            "description": each.description,
            "readonly": int(each.readonly),
            "type": each.type,
            "tier": each.tier,
        }
        for each in SETTINGS.values()
    ]


MERGE_TREE_SETTINGS = SystemTable(_COLUMNS, _rows)
