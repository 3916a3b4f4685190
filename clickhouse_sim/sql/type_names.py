"""`toTypeName` in DuckDB: of a column the type that its table gives it, of anything else what DuckDB's type is."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from replica.schema.readable import TYPE_KEY

TEMPLATE = "clickhouse_type($argument${0}$argument$, typeof({0}))"
MACRO = "clickhouse_type"

_OF_DUCKDB = {
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "INTEGER": "Int32",
    "BIGINT": "Int64",
    "HUGEINT": "Int128",
    "UTINYINT": "UInt8",
    "USMALLINT": "UInt16",
    "UINTEGER": "UInt32",
    "UBIGINT": "UInt64",
    "UHUGEINT": "UInt128",
    "FLOAT": "Float32",
    "DOUBLE": "Float64",
    "BOOLEAN": "Bool",
    "VARCHAR": "String",
    "BLOB": "String",
    "DATE": "Date",
    "TIMESTAMP_S": "DateTime",
    "TIMESTAMP_MS": "DateTime64(3)",
    "TIMESTAMP": "DateTime64(6)",
    "TIMESTAMP_NS": "DateTime64(9)",
    "UUID": "UUID",
    '"NULL"': "Nullable(Nothing)",
}


def macro_sql(tables: Iterable[pa.Table]) -> str:
    """The statement that makes the macro for the columns of these tables."""
    columns = {
        field.name: field.metadata[TYPE_KEY].decode()
        for table in tables
        for field in table.schema
        if TYPE_KEY in (field.metadata or {})
    }
    named = "".join(
        f" WHEN {_literal(spelling)} THEN {_literal(text)}"
        for name, text in columns.items()
        for spelling in (name, f'"{name}"')
    )
    others = "".join(f" WHEN {_literal(theirs)} THEN {_literal(ours)}" for theirs, ours in _OF_DUCKDB.items())
    return (
        f"CREATE TEMP MACRO {MACRO}(argument, duckdb) AS "
        f"CASE argument{named} ELSE CASE duckdb{others} ELSE duckdb END END"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
