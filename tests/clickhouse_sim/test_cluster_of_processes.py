"""One whole round with real processes: coordinator, replicas, `chsim` in front."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


class Chsim:
    def __init__(self, folder: Path) -> None:
        self._environment = {**os.environ, "CHSIM_DIR": str(folder), "PYTHONPATH": str(_ROOT)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "clickhouse_sim", *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, timeout=100
        )

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_killed_replica_catches_up_and_duplicates_are_recognised(tmp_path: Path) -> None:
    chsim = Chsim(tmp_path / "cluster")
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n" + "".join(f"{number},n{number}\n" for number in range(30)))
    try:
        up = chsim.run("up", "--replicas", "2", "--session-timeout", "1")
        assert up.returncode == 0, up.stderr
        assert "chsim sql" in up.stderr
        engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}')"
        chsim.records("sql", f"CREATE TABLE t (id UInt64, name String) ENGINE = {engine} ORDER BY id")
        chsim.records("kill", "r2")
        first = chsim.records("insert", "t", str(rows), "--block-rows", "10")
        assert [block["status"] for block in first] == ["stored"] * 3
        chsim.records("start", "r2")
        _wait_for_rows(chsim, "r2", 30)
        second = chsim.records("insert", "t", str(rows), "--block-rows", "10", "--replica", "r2")
        assert [block["status"] for block in second] == ["duplicate"] * 3
        named = [[part["part_name"] for part in block["parts"]] for block in second]
        assert named == [[part["part_name"] for part in block["parts"]] for block in first]
        assert len(chsim.records("log", "t")) >= 3
        assert "/clickhouse" in [node["path"] for node in chsim.records("znodes")]
    finally:
        down = chsim.run("down")
    assert down.stderr.strip() == "Stopped r1, r2, coordinator."


# As they are printed in an article about the replication log.
LOOKING_AT_IT = """
-- The replication log, as text.
SELECT * FROM system.zookeeper_log WHERE path LIKE '/clickhouse/tables/%/log/%' LIMIT 5;

-- The per-replica queue.
SELECT replica_name, type, new_part_name, num_tries, num_postponed, last_exception
FROM system.replication_queue
ORDER BY create_time;

-- The deduplication znodes, with the part name they point at.
SELECT name, length(value) FROM system.zookeeper
WHERE path = '/clickhouse/tables/{shard}/default/tbl/deduplication_hashes';
"""


def test_the_queries_that_look_at_replication_run_as_printed(tmp_path: Path) -> None:
    chsim = Chsim(tmp_path / "cluster")
    try:
        up = chsim.run("up", "--replicas", "1", "--session-timeout", "1")
        assert up.returncode == 0, up.stderr
        engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/default/tbl', '{replica}')"
        chsim.records("sql", f"CREATE TABLE tbl (id UInt64) ENGINE = {engine} ORDER BY id")
        inserts = "; ".join(f"INSERT INTO tbl VALUES ({number})" for number in (1, 2, 2))
        ids = [block["parts"][0]["block_id"] for block in chsim.records("sql", inserts)]
        rows = chsim.records("sql", LOOKING_AT_IT)
        log = [row for row in rows if "xid" in row]
        znodes = [row for row in rows if "length(value)" in row]
        assert len(log) == 5
        assert {row["op_num"] for row in log} <= {"Create", "Get"}
        assert any(row["data"].startswith("format version:") for row in log)
        assert sorted(row["name"] for row in znodes) == sorted({*ids})
        assert {row["length(value)"] for row in znodes} == {len("all_0_0_0")}
        pretty = chsim.run("sql", f"{LOOKING_AT_IT} SELECT * FROM system.replicas;", "--format", "pretty")
        assert pretty.returncode == 0, pretty.stderr
        assert "ZOK" in pretty.stdout or "Request" in pretty.stdout

        optimized = chsim.records("sql", "OPTIMIZE TABLE tbl FINAL; SELECT count() AS n FROM tbl")
        assert optimized == [{"partition_id": "all", "new_part": "all_0_1_1", "reason": ""}, {"n": 2}]
        asked = """
            SELECT event_type, part_name, length(merged_from) AS sources, error FROM system.part_log
            WHERE notEmpty(part_name) ORDER BY event_time_microseconds;
            SELECT replica_is_active['r1'] AS r1, replica_is_active FROM system.replicas;
            SELECT * FROM system.merges; SELECT * FROM system.replicated_fetches; SELECT * FROM system.parts LIMIT 1
        """
        *events, replica, part = chsim.records("sql", asked)
        assert [(each["event_type"], each["sources"], each["error"]) for each in events] == [
            ("NewPart", 0, 0),
            ("NewPart", 0, 0),
            ("NewPart", 0, 389),
            ("MergePartsStart", 2, 0),
            ("MergeParts", 2, 0),
        ]
        assert replica == {"r1": 1, "replica_is_active": {"r1": 1}}
        assert part["creation_tid"] == [1, 1, "00000000-0000-0000-0000-000000000000"]
        for bad in ("SELECT * FROM system.zookeeper", "OPTIMIZE TABLE tbl PARTITION 5", "OPTIMIZE TABLE nope"):
            refused = chsim.run("sql", bad)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert refused.stderr.startswith("Error: ")
    finally:
        chsim.run("down")


def _wait_for_rows(chsim: Chsim, replica: str, rows: int) -> None:
    deadline = time.monotonic() + 60
    while chsim.records("sql", "SELECT count() AS n FROM t", "--replica", replica) != [{"n": rows}]:
        if time.monotonic() > deadline:
            pytest.fail(f"{replica} has not got {rows} rows in a minute")
        time.sleep(0.2)
