"""The durable ledger: one SQLite file, in which a primary key decides who accepts an identity.

A claim is one INSERT, committed and synced when it returns; of several gateways and processes on the file, SQLite
lets one succeed. A trigger counts the rows in the same transaction, and a CHECK on that count is the capacity, so
neither a race nor another program can overfill the file. Nothing is ever deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clickhouse_sim.ingest.gateway.errors import (
    DedupeConfigError,
    DedupeIdentityLedgerCapacityError,
    DedupeIdentityLedgerError,
)
from clickhouse_sim.ingest.gateway.statistics import DedupeIdentityLedgerStats
from clickhouse_sim.ingest.write_ahead import use_write_ahead_log

_APPLICATION_ID = 0x64647570  # "ddup"
_LARGEST_INTEGER = 2**63 - 1
_WAIT_SECONDS = 30.0
"""For another process that is writing."""

_SCHEMA = (
    """CREATE TABLE ledger (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        max_identities INTEGER NOT NULL,
        stored_identities INTEGER NOT NULL,
        CONSTRAINT capacity CHECK (stored_identities <= max_identities)
    )""",
    "CREATE TABLE identity (key BLOB PRIMARY KEY, accepted_at_ms INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TRIGGER counted AFTER INSERT ON identity BEGIN
        UPDATE ledger SET stored_identities = stored_identities + 1;
    END""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
)


class SqliteIdentityLedger:
    """A `DedupeIdentityLedger` in a file, which is made where it is missing; its folder must be there.

    The capacity is the file's: a file opened with another one than it was made with is refused, since gateways that
    share it must agree. Raises DedupeConfigError for a path or a capacity that is none, DedupeIdentityLedgerError for
    a file that cannot be opened or is something else.
    """

    def __init__(self, database_path: str | Path, max_identities: int) -> None:
        if not isinstance(max_identities, int) or isinstance(max_identities, bool) or max_identities < 1:
            raise DedupeConfigError(f"max_durable_identities must be a positive integer, not {max_identities!r}.")
        if max_identities > _LARGEST_INTEGER:
            raise DedupeConfigError(f"max_durable_identities is more than SQLite counts to: {max_identities}.")
        text = str(database_path)
        if not text or text == ":memory:" or "\0" in text:
            raise DedupeConfigError(f"durable_identity_ledger_path must name a file, not {text!r}.")
        self.database_path = str(Path(database_path).absolute())
        self.max_identities = max_identities
        self._connection: sqlite3.Connection | None = None
        with self._told("open"):
            self._connection = sqlite3.connect(self.database_path, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            with self._told("open"):
                self._prepare(self._connection)
        except DedupeIdentityLedgerError:
            self.close()
            raise

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        """True for the one caller, of all on this file and for all time, who claims the identity first.

        Raises DedupeIdentityLedgerCapacityError for a new one in a full file, DedupeIdentityLedgerError when the file
        does not take it: the disk is full, or another process has held the file for half a minute.
        """
        # Half a surrogate pair, which JSON can spell, has no UTF-8; any text has this form, and no two the same.
        key = identity_key.encode("utf-8", "surrogatepass")
        with self._told("write to"):
            try:
                self._open().execute("INSERT INTO identity VALUES (?, ?)", (key, accepted_at_ms))
            except sqlite3.IntegrityError as refusal:
                if refusal.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
                    return False
                stored = self.get_stats().stored_identities
                raise DedupeIdentityLedgerCapacityError(stored, self.max_identities) from None
        return True

    @contextmanager
    def together(self) -> Iterator[None]:
        """Claims made inside are committed as one, at the end, with one sync; until then other processes wait.

        An error inside takes all of them back, also those that were answered True.
        """
        with self._told("write to"), _transaction(self._open()):
            yield

    def get_stats(self) -> DedupeIdentityLedgerStats:
        """How full the file is, whoever filled it."""
        with self._told("read"):
            (stored,) = self._open().execute("SELECT stored_identities FROM ledger").fetchone()
        return DedupeIdentityLedgerStats(stored, self.max_identities, self.database_path)

    def close(self) -> None:
        """Let go of the file; what is in it stays. To close twice is fine."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DedupeIdentityLedgerError(f"The identity ledger {self.database_path} is closed.")
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file; know those of one that is there."""
        use_write_ahead_log(connection, _WAIT_SECONDS)
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO ledger VALUES (1, ?, 0)", (self.max_identities,))
            self._check(connection)

    def _check(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
            raise DedupeIdentityLedgerError(f"{self.database_path} is another program's database; name another file.")
        (made_for,) = connection.execute("SELECT max_identities FROM ledger").fetchone()
        if made_for != self.max_identities:
            raise DedupeIdentityLedgerError(
                f"{self.database_path} was made for {made_for:,} identities, not {self.max_identities:,}: "
                "give its own capacity, or another file."
            )

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """SQLite's errors under our name."""
        try:
            yield
        except sqlite3.Error as problem:
            raise DedupeIdentityLedgerError(
                f"Cannot {doing} the identity ledger {self.database_path}: {problem}."
            ) from problem


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have ended it already
            connection.execute("ROLLBACK")
        raise
