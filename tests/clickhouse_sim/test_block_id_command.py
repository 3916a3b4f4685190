"""`chsim block-id`: the ids of a file, and what a coordinator knows of them; vectors through `check_block_ids`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clickhouse_sim.cluster.cluster import Cluster
from coordinator.kazoo_client import KazooCoordinator
from scripts.check_block_ids import main as check

VECTORS = Path(__file__).parent.parent / "data" / "block_ids.jsonl"
DDL = (
    "CREATE TABLE t (k UInt64, v String)"
    " ENGINE = ReplicatedMergeTree('/tables/{shard}/t', '{replica}') PARTITION BY k % 2 ORDER BY k"
)
HASHES = "15791250770269468890_3957261080685031764"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """The command's arguments for the rows of the first vector."""
    rows, ddl = tmp_path / "rows.csv", tmp_path / "t.sql"
    rows.write_text("k,v\n1,a\n2,b\n3,c\n")
    ddl.write_text(DDL)
    return str(rows), "--ddl", str(ddl)


def test_the_ids_are_clickhouses(toy_cluster: Any, files: tuple[str, ...]) -> None:
    assert toy_cluster.records("block-id", *files) == [
        {"block": 0, "rows": 2, "partition_id": "1", "block_id": f"1_{HASHES}"},
        {"block": 0, "rows": 1, "partition_id": "0", "block_id": f"0_{HASHES}"},
    ]


def test_blocks_are_numbered_as_they_come(toy_cluster: Any, files: tuple[str, ...]) -> None:
    rows = toy_cluster.records("block-id", *files, "--block-rows", "2", "--token", "tok")
    assert [(row["block"], row["partition_id"]) for row in rows] == [(0, "1"), (0, "0"), (1, "1")]
    assert rows[0]["block_id"] == "1_8063802590530341298_12784266628543400267"
    assert rows[2]["block_id"] != rows[0]["block_id"]


async def _make(address: str, znodes: dict[str, str]) -> None:
    session = await KazooCoordinator(address).connect()
    for path, data in znodes.items():
        await session.create(path, data.encode())
    await session.close()


@pytest.fixture
def address(coordinated_cluster: Any) -> str:
    """A coordinator that knows one of the two ids."""
    found = Cluster(coordinated_cluster.folder).coordinator_address()
    folders = ["/tables", "/tables/01", "/tables/01/t", "/tables/01/t/metadata", "/tables/01/t/blocks"]
    folders += ["/tables/01/t/deduplication_hashes"]
    asyncio.run(
        _make(
            found,
            dict.fromkeys(folders, "")
            | {f"/tables/01/t/deduplication_hashes/1_{HASHES}": "1_4_4_0", "/tables/01/t/blocks/1_5_6": "1_0_0_0"},
        )
    )
    return found


def test_what_the_coordinator_knows(coordinated_cluster: Any, address: str, files: tuple[str, ...]) -> None:
    result = coordinated_cluster.chsim("block-id", *files, "--check", address, "--macro", "shard=01")
    assert result.exit_code == 0
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["known"], first["part"], first["since"] is not None) == (True, "1_4_4_0", True)
    assert (second["known"], second["part"], second["since"]) == (False, None, None)
    assert "1 of 2 ids are in /tables/01/t/deduplication_hashes" in result.stderr
    assert "/tables/01/t/blocks has 1 id of an older ClickHouse" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("--check", "ADDRESS"), 2, "--macro NAME=VALUE"),
        (("--check", "ADDRESS", "--path", "/tables/02/t"), 1, "no replicated table at /tables/02/t"),
        (("--check", "ADDRESS", "--path", "tables"), 2, "starts with a slash"),
        (("--path", "/tables/01/t"), 2, "--check"),
        (("--check", "ADDRESS", "--macro", "shard"), 2, "name=value"),
    ],
)
def test_what_cannot_be_looked_for(
    coordinated_cluster: Any,
    address: str,
    files: tuple[str, ...],
    arguments: tuple[str, ...],
    exit_code: int,
    says: str,
) -> None:
    given = (address if each == "ADDRESS" else each for each in arguments)
    result = coordinated_cluster.chsim("block-id", *files, *given)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert says in result.stderr


@pytest.mark.parametrize("ddl", ["SELECT 1", f"{DDL}; {DDL}", "CREATE TABLE t (k Dynamic) ENGINE = X", ""])
def test_a_file_without_one_table_is_refused(toy_cluster: Any, files: tuple[str, str, str], ddl: str) -> None:
    Path(files[2]).write_text(ddl)
    result = toy_cluster.chsim("block-id", *files)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "t.sql" in result.stderr


def test_vectors_are_checked_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(str(VECTORS)) == 0
    assert capsys.readouterr().out == "103 of 103 ids match\n"
    good, *_ = VECTORS.read_text().splitlines()
    bad = json.loads(good) | {"name": "bad", "rows": [[1, "a"]]}
    dynamic = json.loads(good) | {"name": "dynamic", "columns": [["k", "Dynamic"], ["v", "String"]]}
    path = tmp_path / "some.jsonl"
    path.write_text(f"{good}\n{json.dumps(bad)}\n{json.dumps(dynamic)}\n")
    assert check(str(path)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["bad", "dynamic", "1 of 3 ids match"]


def test_a_null_over_a_value_is_hashed_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Nullable is its values and then its flags: what a client may send under a NULL counts."""
    over = {"name": "over", "columns": [["a", "Nullable(UInt32)"]], "rows": [[{"null_over": 7}], [1], [None]]}
    pair = {"name": "pair", "columns": [["a", "Tuple(UInt32, UInt8)"]], "rows": [[[7, 1]], [[1, 0]], [[0, 1]]]}
    shared = {"partition_by": "", "settings": {}, "ids": []}
    path = tmp_path / "over.jsonl"
    path.write_text("".join(f"{json.dumps(each | shared)}\n" for each in (over, pair)))
    assert check(str(path)) == 1
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.split("the model has ")[1] == second.split("the model has ")[1]
