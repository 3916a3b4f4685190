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


def _wait_for_rows(chsim: Chsim, replica: str, rows: int) -> None:
    deadline = time.monotonic() + 60
    while chsim.records("sql", "SELECT count() AS n FROM t", "--replica", replica) != [{"n": rows}]:
        if time.monotonic() > deadline:
            pytest.fail(f"{replica} has not got {rows} rows in a minute")
        time.sleep(0.2)
