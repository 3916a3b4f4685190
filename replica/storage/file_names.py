"""Where things lie below a server's root: `data/<database>/<table>/<part>/`, names escaped as ClickHouse does."""

from __future__ import annotations

import re

from replica.environment import Disk
from replica.errors import BadArguments

_LONGEST_STEP = 206  # as in ClickHouse: what is appended to it must fit a file name too
_TO_ESCAPE = re.compile(rb"[^0-9A-Za-z_]")

INSERT_PREFIX = "tmp_insert_"
FETCH_PREFIX = "tmp-fetch_"
MERGE_PREFIX = "tmp_merge_"
DELETE_PREFIX = "tmp_delete_"
CLONE_PREFIX = "tmp_clone_"
DETACHED = "detached"
ATTACHING_PREFIX = "attaching_"
EMPTY_PREFIX = "tmp_empty_"


def escape_for_file_name(name: str) -> str:
    """ASCII letters, digits and `_` as they are, every other byte as `%XX` (`escapeForFileName.cpp`).

    Whatever the name, the result is one harmless step of a path. Raises BadArguments for an empty name.
    """
    if not name:
        raise BadArguments("an empty name cannot be the name of a file")
    return _TO_ESCAPE.sub(lambda byte: b"%%%02X" % byte[0][0], name.encode()).decode()


def table_folder(database: str, table: str) -> str:
    """The folder of a table's parts. Raises BadArguments for a name that is too long for files (or empty)."""
    steps = [escape_for_file_name(name) for name in (database, table)]
    for name, step in zip((database, table), steps, strict=True):
        if len(step) > _LONGEST_STEP:
            raise BadArguments(
                f"The name {name[:20]}… is too long: written as a file name it has {len(step)} characters, "
                f"and {_LONGEST_STEP} is the most"
            )
    return f"data/{steps[0]}/{steps[1]}"


async def make_durable_folder(disk: Disk, path: str) -> None:
    """Create the folder and its missing ancestors so that their names survive a crash."""
    await disk.make_folder(path)
    steps = path.split("/")
    for depth in range(len(steps)):
        await disk.fsync_folder("/".join(steps[:depth]))
