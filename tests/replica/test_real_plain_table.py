"""The deduplication log of the real engine is read by ours, and ours by it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replica.commands import Engine, InsertOptions, InsertStatus
from tests.replica.cluster import Cluster, definition

pytestmark = pytest.mark.real

LOGS = "deduplication_logs"
KEYS = range(1, 9)


class RealEngine:
    """chdb with a database of its own; a table's folder is where the engine keeps it."""

    def __init__(self, folder: Path) -> None:
        from chdb import session

        self._folder = folder
        self._session = session.Session(str(folder))
        self.run("CREATE DATABASE d ENGINE = Atomic")

    def run(self, sql: str) -> list[list[str]]:
        return [line.split("\t") for line in str(self._session.query(sql, "TSV")).splitlines()]

    def make(self, table: str, window: int) -> None:
        self.run(
            f"CREATE TABLE d.{table} (k UInt64) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k "
            f"SETTINGS non_replicated_deduplication_window = {window}"
        )

    def insert(self, table: str, key: int) -> bool:
        """Whether the row was stored."""
        before = self.count(table)
        self.run(f"INSERT INTO d.{table} VALUES ({key}), ({key + 1})")
        return self.count(table) > before

    def count(self, table: str) -> int:
        return int(self.run(f"SELECT count() FROM d.{table}")[0][0])

    def logs(self, table: str) -> Path:
        ((path,),) = self.run(f"SELECT data_paths[1] FROM system.tables WHERE database = 'd' AND name = '{table}'")
        return Path(path) / LOGS

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    pytest.importorskip("chdb")
    engine = RealEngine(tmp_path_factory.mktemp("engine"))
    yield engine
    engine.close()


@pytest.fixture
async def ours(cluster: Cluster) -> AsyncIterator[Cluster]:
    await cluster.start("r1")
    return cluster


async def make(ours: Cluster, window: int) -> Path:
    changes = {
        "engine": Engine.MERGE_TREE,
        "columns": definition().columns[:1],
        "zookeeper_path": "",
        "replica_name": "",
        "settings": {"non_replicated_deduplication_window": str(window)},
    }
    await ours.replicas["r1"].server.execute(definition(**changes))
    return ours.folder / "r1" / "data/default/t" / LOGS


async def insert(ours: Cluster, key: int) -> bool:
    block = pa.table({"k": pa.array([key, key + 1], pa.uint64())})
    outcome = await ours.replicas["r1"].server.insert("default", "t", InsertOptions(), 0, block)
    assert outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE)
    return outcome.status is InsertStatus.STORED


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("window", [1, 3, 6, 100])
async def test_equal_inserts_make_equal_files(engine: RealEngine, ours: Cluster, window: int) -> None:
    """Byte by byte, after every insert: names, lines, and when a file begins and another goes."""
    table = f"equal_{window}"
    engine.make(table, window)
    folder = await make(ours, window)
    for key in [*KEYS, 8, 3, 7, 20, 1]:
        assert engine.insert(table, key) == await insert(ours, key), key
        assert contents(folder) == contents(engine.logs(table)), key


async def test_we_know_what_the_engine_has_stored(engine: RealEngine, ours: Cluster) -> None:
    engine.make("theirs", 6)
    for key in KEYS:
        engine.insert("theirs", key)
    folder = await make(ours, 6)
    await ours.stop("r1")
    shutil.rmtree(folder)
    shutil.copytree(engine.logs("theirs"), folder)
    await ours.start("r1")
    assert [await insert(ours, key) for key in (8, 7, 6, 1)] == [False, False, False, True]


async def test_the_engine_knows_what_we_have_stored(engine: RealEngine, ours: Cluster) -> None:
    folder = await make(ours, 6)
    for key in KEYS:
        await insert(ours, key)
    engine.make("ours", 6)
    logs = engine.logs("ours")
    engine.run("DETACH TABLE d.ours")
    shutil.rmtree(logs)
    shutil.copytree(folder, logs)
    engine.run("ATTACH TABLE d.ours")
    assert [engine.insert("ours", key) for key in (8, 7, 6, 1)] == [False, False, False, True]
