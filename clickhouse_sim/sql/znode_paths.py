"""Which znodes a query over system.zookeeper lists: its WHERE must name them, as in ClickHouse.

ClickHouse: StorageSystemZooKeeper.cpp, `extractPath`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from replica.errors import BadArguments

DATABASE, TABLE = "system", "zookeeper"


def znode_paths(tree: exp.Expr) -> tuple[str, ...]:
    """The paths that the query names, sorted; none if it does not read system.zookeeper.

    Of every SELECT from it, one condition that must hold is `path = '…'` or `path IN ('…', …)`. Raises BadArguments
    if there is none.
    """
    paths: set[str] = set()
    for table in tree.find_all(exp.Table):
        if (table.db, table.name) == (DATABASE, TABLE):
            paths.update(_paths_of(table))
    return tuple(sorted(paths))


def _paths_of(table: exp.Table) -> list[str]:
    select = table.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    names = ("", table.alias or table.name)
    paths = [path for each in _conjuncts(where.this) for path in _named(each, names)] if where is not None else []
    if not paths:
        raise BadArguments(
            "SELECT from system.zookeeper needs the paths to list in its WHERE: path = '/like/this' or path IN (…)"
        )
    return paths


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _named(condition: exp.Expr, tables: tuple[str, ...]) -> list[str]:
    """The paths that the condition allows; none if it is no condition of that form."""
    match condition:
        case exp.EQ() if _is_path(condition.left, tables):
            values = [condition.right]
        case exp.EQ() if _is_path(condition.right, tables):
            values = [condition.left]
        case exp.In() if _is_path(condition.this, tables):
            values = condition.expressions
        case _:
            return []
    literals = [value.unnest() for value in values]
    return [each.name for each in literals] if all(each.is_string for each in literals) else []


def _is_path(node: exp.Expr, tables: tuple[str, ...]) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Column) and node.name == "path" and node.table in tables
