"""Which paths a query over system.zookeeper lists."""

from __future__ import annotations

import pytest

from clickhouse_sim.sql.select import parse_select
from replica.errors import BadArguments


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("SELECT 1", ()),
        ("SELECT path FROM system.zookeeper_log", ()),
        ("SELECT path FROM zookeeper", ()),
        ("SELECT * FROM system.zookeeper WHERE path = '/a/{shard}'", ("/a/{shard}",)),
        ("SELECT * FROM system.zookeeper WHERE '/a' = (path)", ("/a",)),
        ("SELECT * FROM system.zookeeper WHERE path IN ('/b', '/a')", ("/a", "/b")),
        ("SELECT * FROM system.zookeeper WHERE name LIKE 'x%' AND (path = '/a' AND version > 0)", ("/a",)),
        ("SELECT z.name FROM system.zookeeper AS z WHERE z.path = '/a'", ("/a",)),
        (
            "SELECT name FROM system.zookeeper WHERE path = '/a' "
            "UNION ALL SELECT name FROM system.zookeeper WHERE path = '/b'",
            ("/a", "/b"),
        ),
        ("SELECT count() FROM (SELECT name FROM system.zookeeper WHERE path = '/a') WHERE name = 'x'", ("/a",)),
    ],
)
def test_paths(text: str, paths: tuple[str, ...]) -> None:
    assert parse_select(text).znode_paths == paths


@pytest.mark.parametrize(
    "where",
    [
        "",
        "WHERE name = '/a'",
        "WHERE path LIKE '/a%'",
        "WHERE path = '/a' OR name = 'x'",
        "WHERE NOT path = '/a'",
        "WHERE path NOT IN ('/a')",
        "WHERE path != '/a'",
        "WHERE path = name",
        "WHERE path = 1",
        "WHERE path IN ('/a', name)",
        "WHERE path IN (SELECT '/a')",
        "WHERE other.path = '/a'",
    ],
)
def test_without_paths_it_is_refused(where: str) -> None:
    with pytest.raises(BadArguments, match="needs the paths to list"):
        parse_select(f"SELECT name FROM system.zookeeper {where}")
