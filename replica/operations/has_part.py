"""Whether this replica has done already what an entry asks for."""

from __future__ import annotations

from replica.part_name import PartName
from replica.session import ServerSession
from replica.table_state import TableState


async def has_part(state: TableState, session: ServerSession, name: PartName) -> bool:
    """Whether this replica has, and has registered, the part or one that covers it.

    This is how the inserting replica finishes its own entry, also while its insert has not ended yet.
    """
    part = state.store.pre_active(name) or state.store.active_containing(name)
    return part is not None and await session.exists(state.znodes.part(str(part.name))) is not None
