"""`chsim sql` and `chsim insert` against toy servers behind real endpoints."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replica.commands import InsertOptions
from replica.errors import Aborted, KeeperException, NetworkError, TableIsReadOnly, TypeMismatch

CREATE = (
    "CREATE TABLE t (id UInt64, name Nullable(String), day Date) "
    "ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}') PARTITION BY toYYYYMM(day) ORDER BY id"
)


@pytest.fixture
def cluster(toy_cluster: Any) -> Any:
    assert toy_cluster.chsim("sql", CREATE).exit_code == 0
    return toy_cluster


@pytest.fixture
def three_rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("id,name,day\n1,one,2024-01-01\n2,NA,2024-01-02\n3,three,2024-02-01\n")
    return path


def test_ddl_runs_on_every_living_replica_with_one_uuid(toy_cluster: Any) -> None:
    rows = toy_cluster.records("sql", CREATE)
    assert [(row["replica"], row["error"]) for row in rows] == [("r1", ""), ("r2", "")]
    made = [server.tables["t"] for server in toy_cluster.servers.values()]
    assert made[0] == made[1]
    assert made[0].uuid
    assert made[0].partition_by == "toYYYYMM(day)"


def test_ddl_on_one_replica_leaves_the_other_alone(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE, "--replica", "r2")
    assert list(toy_cluster.servers["r1"].tables) == []


def test_ddl_says_which_replicas_were_not_running(toy_cluster: Any) -> None:
    toy_cluster.bury("r2")
    result = toy_cluster.chsim("sql", CREATE)
    assert result.exit_code == 0
    assert "r2" in result.stderr


def test_ddl_that_fails_somewhere_fails_and_says_where(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE, "--replica", "r2")
    result = toy_cluster.chsim("sql", CREATE)
    assert result.exit_code == 1
    assert "r2" in result.stderr
    assert "t" in toy_cluster.servers["r1"].tables


def test_ddl_that_fails_everywhere_is_one_sentence(cluster: Any) -> None:
    result = cluster.chsim("sql", CREATE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: Table t exists already (TABLE_ALREADY_EXISTS)\n"


def test_insert_values_and_select(cluster: Any) -> None:
    [outcome] = cluster.records("sql", "INSERT INTO t VALUES (1, 'one', '2024-01-01'), (2, NULL, '2024-02-01')")
    assert (outcome["status"], outcome["rows"], outcome["parts"][0]["part_name"]) == ("stored", 2, "all_0_0_0")
    rows = cluster.records("sql", "SELECT toYYYYMM(day), count() FROM t GROUP BY 1 ORDER BY 1")
    assert rows == [{"toYYYYMM(day)": 202401, "count()": 1}, {"toYYYYMM(day)": 202402, "count()": 1}]
    assert cluster.records("sql", "SELECT count() AS n FROM t", "--replica", "r2") == [{"n": 0}]


def test_insert_values_passes_its_settings(cluster: Any) -> None:
    cluster.records("sql", "INSERT INTO t (id) SETTINGS insert_deduplication_token = 'x' VALUES (1)")
    assert cluster.servers["r1"].options == [InsertOptions(insert_deduplication_token="x")]


def test_statements_run_in_order_and_none_when_one_cannot_be_read(cluster: Any) -> None:
    rows = cluster.records("sql", "INSERT INTO t (id) VALUES (7); SELECT id FROM t;")
    assert rows[-1] == {"id": 7}
    assert cluster.chsim("sql", "INSERT INTO t (id) VALUES (8); SELEC id").exit_code == 1
    assert cluster.records("sql", "SELECT count() AS n FROM t") == [{"n": 1}]


def test_sql_is_read_from_standard_input(cluster: Any) -> None:
    result = cluster.chsim("sql", stdin="SELECT 1 AS one")
    assert (result.exit_code, result.stdout) == (0, '{"one": 1}\n')


def test_sql_is_read_from_a_file(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "statements.sql"
    path.write_text("SELECT 1 AS one; SELECT 2 AS two")
    assert cluster.records("sql", "-f", str(path)) == [{"one": 1}, {"two": 2}]
    assert cluster.chsim("sql", "--file", "-", stdin="SELECT 1 AS one").stdout == '{"one": 1}\n'
    assert cluster.chsim("sql", "SELECT 1", "-f", str(path)).exit_code == 2
    assert cluster.chsim("sql", "-f", str(tmp_path / "nowhere.sql")).exit_code == 2
    path.write_bytes(b"SELECT '\xff'")
    assert cluster.chsim("sql", "-f", str(path)).exit_code == 2


def test_an_answer_in_every_format(cluster: Any) -> None:
    outputs = {
        "json": '[\n{"a": 1, "b": "x"}\n]\n',
        "jsonl": '{"a": 1, "b": "x"}\n',
        "csv": '"a","b"\n1,"x"\n',
        "tsv": "a\tb\n1\tx\n",
        "vertical": "Row 1:\n──────\na: 1\nb: x\n",
    }
    for name, output in outputs.items():
        assert cluster.chsim("sql", "SELECT 1 AS a, 'x' AS b", "--format", name).stdout == output


def test_show_and_describe(cluster: Any) -> None:
    assert cluster.records("sql", "SHOW TABLES") == [{"name": "t"}]
    assert cluster.records("sql", "SHOW TABLES FROM system") == [{"name": "parts"}]
    assert cluster.records("sql", "DESCRIBE TABLE t")[1]["type"] == "Nullable(String)"


def test_pretty_output_is_a_table(cluster: Any) -> None:
    result = cluster.chsim("sql", "SELECT 1 AS one, 'x' AS letter, NULL AS nothing", "--format", "pretty")
    assert "one" in result.stdout
    assert "NULL" in result.stdout
    assert "│" in result.stdout


def test_a_file_is_inserted_block_by_block_and_recognised_the_second_time(cluster: Any, three_rows: Path) -> None:
    first = cluster.records("insert", "t", str(three_rows), "--block-rows", "2", "--null", "NA")
    assert [(block["block"], block["rows"], block["status"]) for block in first] == [
        (0, 2, "stored"),
        (1, 1, "stored"),
    ]
    second = cluster.chsim("insert", "t", str(three_rows), "--block-rows", "2", "--null", "NA", "--format", "pretty")
    assert [line.split("rows  ")[1] for line in second.stdout.splitlines()] == [
        "duplicate of all_0_0_0",
        "duplicate of all_1_1_0",
    ]
    assert "2 duplicate" in second.stderr
    assert cluster.records("sql", "SELECT name FROM t ORDER BY id") == [
        {"name": "one"},
        {"name": None},
        {"name": "three"},
    ]


def test_a_parquet_file_and_a_token(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["a", None]).dictionary_encode()}), path
    )
    [block] = cluster.records("insert", "default.t", str(path), "--token", "load-1", "--replica", "r2")
    assert block["rows"] == 2
    assert cluster.servers["r2"].options == [InsertOptions(insert_deduplication_token="load-1")]


def test_a_row_that_does_not_fit_is_named_and_earlier_blocks_stay(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,day\n1,2024-01-01\n2,2024-01-01\n3,2024-01-01\nx,2024-01-01\n")
    result = cluster.chsim("insert", "t", str(path), "--block-rows", "2")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert "2 rows in 1 block (1 stored)" in result.stderr
    assert "bad.csv into t: Row 4 (block 1): 'x' in column 'id'" in result.stderr
    assert cluster.records("sql", "SELECT count() AS n FROM t") == [{"n": 2}]


def test_nothing_is_inserted_when_the_first_block_is_bad(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,dya\n1,2024-01-01\n")
    result = cluster.chsim("insert", "t", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Did you mean 'day'" in result.stderr
    assert "stay" not in result.stderr


@pytest.mark.parametrize(("error", "exit_code"), [(Aborted("shutting down"), 69), (NetworkError("r1 is gone"), 69)])
def test_an_error_of_the_server_in_the_middle(
    cluster: Any, three_rows: Path, error: Exception, exit_code: int
) -> None:
    cluster.servers["r1"].refuse = lambda source_number: error if source_number == 1 else None
    result = cluster.chsim("insert", "t", str(three_rows), "--block-rows", "2", "--null", "NA")
    assert result.exit_code == exit_code
    assert "Before that: 2 rows in 1 block" in result.stderr
    assert (
        "Whether block 1 was stored is not known. What is stored stays; the same command, run again," in result.stderr
    )
    assert str(error) in result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["block"], last["rows"], last["status"]) == (1, 1, "unknown")


def test_a_block_that_the_server_refuses_is_not_unknown(cluster: Any, three_rows: Path) -> None:
    cluster.servers["r1"].refuse = lambda source_number: TypeMismatch("no") if source_number == 1 else None
    result = cluster.chsim("insert", "t", str(three_rows), "--block-rows", "2", "--null", "NA")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert "Before that: 2 rows in 1 block (1 stored). What is stored stays" in result.stderr
    assert "not known" not in result.stderr


@pytest.mark.parametrize("command", ["insert", "sql"])
def test_ctrl_c_says_what_is_known_and_that_a_retry_is_safe(cluster: Any, three_rows: Path, command: str) -> None:
    cluster.servers["r1"].delay_from = (1 if command == "insert" else 0, 60.0)
    arguments = {
        "insert": ["t", str(three_rows), "--block-rows", "2", "--null", "NA"],
        "sql": ["INSERT INTO t (id) VALUES (7)"],
    }[command]
    with subprocess.Popen(
        [sys.executable, "-m", "clickhouse_sim", command, *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CHSIM_DIR": str(cluster.folder.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert cluster.servers["r1"].delaying.wait(30)
        process.send_signal(signal.SIGINT)
        output, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(output.splitlines()[-1])["status"] == "unknown"
    assert "recognises" in told
    assert "not known" in told
    assert "Traceback" not in told
    if command == "insert":
        assert "Before that: 2 rows in 1 block (1 stored). Whether block 1 was stored is not known." in told


def test_columns_that_the_file_lacks_are_named(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("day\n2024-01-01\n")
    assert "filled with defaults: id, name." in cluster.chsim("insert", "t", str(path)).stderr
    path.write_text("day,id,name\n2024-01-01,1,x\n")
    assert "defaults" not in cluster.chsim("insert", "t", str(path)).stderr


@pytest.mark.parametrize("arguments", [["rows.txt"], ["rows.parquet", "--no-header"], ["rows.jsonl", "--null", "NA"]])
def test_a_file_that_cannot_be_read_that_way_is_wrong_usage(
    cluster: Any, tmp_path: Path, arguments: list[str]
) -> None:
    path = tmp_path / arguments[0]
    path.write_text("")
    result = cluster.chsim("insert", "t", str(path), *arguments[1:])
    assert result.exit_code == 2
    assert result.stderr.count(arguments[0]) == 1


def test_a_table_of_an_odd_name_needs_no_quotes(cluster: Any, three_rows: Path) -> None:
    assert cluster.chsim("sql", CREATE.replace(" t ", " `my-events 1` ")).exit_code == 0
    assert cluster.chsim("insert", "my-events 1", str(three_rows), "--null", "NA").exit_code == 0
    assert len(cluster.records("parts", "my-events 1", "--replica", "r1")) == 1


def test_a_failing_statement_is_named_and_so_are_those_that_did_not_run(cluster: Any) -> None:
    result = cluster.chsim("sql", "SELECT 1; INSERT INTO nope VALUES (1); SELECT 2; SELECT 3")
    assert result.exit_code == 1
    assert (
        "Statement 2 of 4 failed (INSERT INTO nope VALUES (1)); 2 statements after it did not run." in result.stderr
    )
    assert "Statement" not in cluster.chsim("sql", "INSERT INTO nope VALUES (1)").stderr


@pytest.mark.parametrize("error", [TableIsReadOnly("read-only"), KeeperException("gone"), Aborted("no session")])
def test_what_fails_for_want_of_a_coordinator_is_unreachable(
    cluster: Any, three_rows: Path, error: Exception
) -> None:
    """The toy cluster has no coordinator."""
    cluster.servers["r1"].refuse = lambda source_number: error
    for command in (["sql", "INSERT INTO t (id) VALUES (1)"], ["insert", "t", str(three_rows), "--null", "NA"]):
        result = cluster.chsim(*command)
        assert result.exit_code == 69
        assert str(error) in result.stderr
        assert "the coordinator is not running: start it with chsim start coordinator" in result.stderr


@pytest.mark.parametrize(
    "command", [["sql", "SELECT 1"], ["queue"], ["parts"], ["insert", "t", "{file}"]], ids=lambda command: command[0]
)
def test_a_member_that_is_no_replica_is_wrong_usage(cluster: Any, three_rows: Path, command: list[str]) -> None:
    for name in ("coordinator", "r9"):
        result = cluster.chsim(*(part.format(file=three_rows) for part in command), "--replica", name)
        assert result.exit_code == 2
        assert f"{name} is not a replica; replicas are r1, r2" in result.stderr


def test_rows_come_from_stdin_too_and_make_the_same_blocks(cluster: Any, three_rows: Path) -> None:
    cluster.records("insert", "t", str(three_rows), "--null", "NA")
    rows = (
        '{"day": "2024-01-01", "id": "1", "name": "one"}\n{"id": 2, "day": "2024-01-02"}\n'
        '{"id": 3, "name": "three", "day": "2024-02-01"}\n'
    )
    result = cluster.chsim("insert", "t", "-", "--input-format", "jsonl", stdin=rows)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["status"] == "duplicate"
    assert cluster.chsim("insert", "t", "-", stdin=rows).exit_code == 2
    bad = cluster.chsim("insert", "t", "-", "--input-format", "jsonl", stdin='{"idd": 1}')
    assert bad.exit_code == 1
    assert "stdin into t: Row 1 (block 0): There is no column 'idd'" in bad.stderr


@pytest.mark.parametrize("setting", [{}, {"NO_COLOR": "1"}])
def test_progress_is_shown_on_a_terminal_and_data_stay_clean(
    cluster: Any, three_rows: Path, setting: dict[str, str]
) -> None:
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"CHSIM_DIR": str(cluster.folder.root), "TERM": "xterm", "COLUMNS": "120", **setting}
    command = [sys.executable, "-m", "clickhouse_sim", "insert", "t", str(three_rows), "--null", "NA"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=terminal, check=False)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(controller, 65536):
            shown += chunk
    os.close(controller)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"] == 3
    assert (b"3 rows, " in shown and b"rows/s, 1 block, 0 duplicate" in shown) == (not setting)
    assert (b"\x1b" in shown) == (not setting)
    assert b"3 rows in 1 block (1 stored) through r1." in shown


def test_an_empty_file_inserts_nothing(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("id,day\n")
    result = cluster.chsim("insert", "t", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "0 rows" in result.stderr


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SELECT * FROM nope", "UNKNOWN_TABLE"),
        ("SELECT nope FROM t", "UNKNOWN_IDENTIFIER"),
        ("SELECT nope(id) FROM t", "UNKNOWN_FUNCTION"),
        ("SELECT FROM WHERE", "SYNTAX_ERROR"),
        ("CREATE TABLE u (a Int9) ENGINE = ReplicatedMergeTree('/u', 'r') ORDER BY a", "UNKNOWN_TYPE"),
        ("CREATE TABLE u (a Int8) ENGINE = TinyLog", "UNKNOWN_STORAGE"),
        ("INSERT INTO t (id) VALUES (-1)", "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
        ("INSERT INTO t SETTINGS insert_dedup = 1 VALUES (1)", "UNKNOWN_SETTING"),
        ("SELECT * FROM system.nope", "UNKNOWN_TABLE"),
    ],
)
def test_bad_statements_are_one_sentence_and_exit_code_1(cluster: Any, statement: str, complaint: str) -> None:
    result = cluster.chsim("sql", statement)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f"({complaint})\n")


def test_an_unknown_replica_is_wrong_usage_and_a_dead_one_is_unreachable(cluster: Any) -> None:
    assert cluster.chsim("sql", "SELECT 1", "--replica", "r9").exit_code == 2
    cluster.bury("r2")
    result = cluster.chsim("sql", "SELECT 1", "--replica", "r2")
    assert result.exit_code == 69
    assert "chsim start r2" in result.stderr


def test_without_a_cluster_everything_says_so(tmp_path: Path, cluster: Any) -> None:
    for command in (
        ["sql", "SELECT 1"],
        ["status"],
        ["queue"],
        ["log"],
        ["parts"],
        ["znodes"],
        ["down"],
        ["kill", "r1"],
    ):
        result = cluster.chsim(*command, "--dir", str(tmp_path / "nowhere"))
        assert result.exit_code == 69, command
        assert "chsim up" in result.stderr


def test_a_server_that_does_not_answer_is_unreachable(cluster: Any) -> None:
    ready = cluster.folder.data("r1") / "ready.json"
    ready.write_text(ready.read_text().replace(ready.read_text().split(":")[-1].split('"')[0], "1"))
    result = cluster.chsim("sql", "SELECT 1 FROM t")
    assert result.exit_code == 69
    assert "127.0.0.1:1" in result.stderr
