"""The choice of merges and their rows beside the real engine's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields

import pyarrow as pa
import pytest

from replica.expression import compile_key, sort_block
from replica.merge_selector import PartToMerge, select_merge
from replica.part_name import PartName
from replica.quoting import readable_size
from replica.schema import Column, TableSchema, parse_type
from replica.settings import MergeTreeSettings
from replica.storage.merge_rows import merge_rows

pytestmark = pytest.mark.real


class Engine:
    def __init__(self, folder: str) -> None:
        from chdb import session

        self._session = session.Session(folder)
        self.run("CREATE DATABASE d ENGINE = Atomic")

    def run(self, sql: str) -> list[list[str]]:
        answer = str(self._session.query(sql, "TSV").bytes().decode())
        return [line.split("\t") for line in answer.splitlines()]

    def table(self, sql: str) -> pa.Table:
        return pa.ipc.open_stream(self._session.query(sql, "ArrowStream").bytes()).read_all()

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    pytest.importorskip("chdb")
    engine = Engine(str(tmp_path_factory.mktemp("engine")))
    yield engine
    engine.close()


def test_the_defaults_of_the_settings(engine: Engine) -> None:
    """The embedded engine lowers what depends on the size of its pool."""
    theirs = dict(map(tuple, engine.run("SELECT name, value FROM system.merge_tree_settings")))  # type: ignore[arg-type]
    for field in fields(MergeTreeSettings):
        if "merge" in field.name and "free_entries" not in field.name and "failed" not in field.name:
            assert theirs[field.name] == str(field.default), field.name


def random_size(draw: random.Random, kind: str) -> int:
    if kind == "equal":
        return 1000
    if kind == "small":
        return draw.randint(1, 5000)
    if kind == "tiny":
        return draw.choice([100, 100, 3_000_000, 20_000_000])
    return int(10 ** draw.uniform(2 if kind == "mixed" else 5, 7.3))


@pytest.mark.parametrize("seed", range(60))
def test_the_merge_that_optimize_chooses(engine: Engine, seed: int) -> None:
    draw = random.Random(seed)
    most = draw.choice([2, 3, 4, 5, 100])
    kind = draw.choice(["equal", "small", "big", "mixed", "tiny"])
    # So large a base keeps the engine from merging by itself; OPTIMIZE does not use it.
    settings = f"merge_selector_base = 1000000, max_parts_to_merge_at_once = {most}"
    engine.run(f"CREATE TABLE d.t (s String CODEC(NONE)) ENGINE = MergeTree ORDER BY tuple() SETTINGS {settings}")
    for _ in range(draw.randint(2, 9)):
        engine.run(f"INSERT INTO d.t SELECT randomString({random_size(draw, kind)})")
    of_table = "FROM system.parts WHERE database = 'd' AND table = 't' AND active"
    parts = engine.run(f"SELECT name, bytes_on_disk {of_table} ORDER BY min_block_number")
    engine.run("OPTIMIZE TABLE d.t")
    merged = engine.run(f"SELECT name {of_table} AND level > 0")
    engine.run("DROP TABLE d.t SYNC")
    mine = select_merge(
        [[PartToMerge(PartName.parse(name), int(size), 0.0) for name, size in parts]],
        150 << 30,
        MergeTreeSettings(max_parts_to_merge_at_once=most),
        aggressive=True,
    )
    assert merged == ([] if mine is None else [[str(PartName.merged([part.name for part in mine]))]])


COLUMNS = {"i": "UInt32", "k": "Int8", "f": "Float64", "n": "Nullable(Float64)", "s": "String"}
VALUES = {
    "k": ["0", "1", "2", "-1"],
    "f": ["0.", "-0.", "nan", "-nan", "1."],
    "n": ["0.", "-0.", "nan", "NULL"],
    "s": ["''", "'a'", "'b'"],
}


CASES = [  # the engine wants every column of the key in BY
    *(("", by) for by in ("", "k", "f, s", "n", "i", "k, s, n")),
    *(("k", by) for by in ("", "k", "s, k", "f, k")),
    *(("(f, k)", by) for by in ("", "f, k", "n, k, f")),
    *(("(k % 2, f)", by) for by in ("", "f, k", "n, k, f")),
    *(("(k, n)", by) for by in ("", "k, n", "f, n, k")),
]


@pytest.mark.parametrize(("key", "by"), CASES)
def test_the_rows_of_a_merge(engine: Engine, key: str, by: str) -> None:
    draw = random.Random(key + by)
    schema = TableSchema(tuple(Column(name, parse_type(text)) for name, text in COLUMNS.items()))
    columns = ", ".join(f"{name} {text}" for name, text in COLUMNS.items())
    ending = f"ENGINE = MergeTree ORDER BY {key or 'tuple()'} SETTINGS allow_nullable_key = 1"
    engine.run(f"CREATE OR REPLACE TABLE d.r ({columns}) {ending}")
    engine.run("SYSTEM STOP MERGES d.r")
    sorting_key = compile_key(key, schema, allow_nullable_key=True)
    parts, number = [], 0
    for _ in range(3):
        rows = []
        for _ in range(12):
            rows.append(f"({number}, {', '.join(draw.choice(VALUES[name]) for name in VALUES)})")
            number += 1
        engine.run(f"INSERT INTO d.r VALUES {', '.join(rows)}")
        first = number - 12
        block = engine.table(f"SELECT * FROM d.r WHERE i >= {first} ORDER BY i")
        parts.append(sort_block(block.cast(schema.arrow_schema), sorting_key))
    engine.run("SYSTEM START MERGES d.r")
    engine.run("OPTIMIZE TABLE d.r FINAL" + (f" DEDUPLICATE BY {by}" if by else ""))
    wanted = engine.table("SELECT i FROM d.r SETTINGS max_threads = 1")["i"].to_pylist()
    engine.run("DROP TABLE d.r SYNC")
    names = tuple(by.split(", ")) if by else ()
    assert merge_rows(parts, sorting_key, bool(by), names)["i"].to_pylist() == wanted


def test_readable_sizes(engine: Engine) -> None:
    sizes = [0, 1, 1023, 1024, 1025, 1536 << 20, 150 << 30, (1 << 50) - 1, 3 << 60]
    for size in sizes:
        assert engine.run(f"SELECT formatReadableSize({size})") == [[readable_size(size)]]
