"""DROP TABLE and DROP VIEW: from their tokens to `replica.commands.DropTable`."""

from __future__ import annotations

from clickhouse_sim.sql.tokens import Cursor
from replica.commands import DropTable
from replica.errors import NotImplementedInModel


def parse_drop(cursor: Cursor) -> DropTable:
    """What a DROP TABLE or DROP VIEW statement asks. SYNC may be said: every drop is one here.

    Raises SqlSyntaxError where it cannot be read, and NotImplementedInModel for what else can be dropped.
    """
    cursor.expect_words("DROP")
    only_view = cursor.take_words("VIEW")
    if not only_view and not cursor.take_words("TABLE"):
        raise NotImplementedInModel(f"DROP {' '.join(cursor.words())}: the model drops tables and views only")
    if_exists = cursor.take_words("IF", "EXISTS")
    database, table = cursor.table_name()
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, chsim runs DDL on every living replica by itself")
    cursor.take_words("SYNC") or cursor.take_words("NO", "DELAY")
    if not cursor.at_end:
        raise cursor.error("SYNC or the end of the statement")
    return DropTable(database, table, if_exists, only_view)
