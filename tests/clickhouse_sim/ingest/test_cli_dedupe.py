"""`chsim dedupe`: JSON lines in, each identity once out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clickhouse_sim.cli.main import main
from clickhouse_sim.ingest.gateway import SqliteIdentityLedger

ROOT = Path(__file__).parents[3]


def chsim(*arguments: str | Path, stdin: bytes | str | None = None) -> Result:
    return CliRunner().invoke(main, ["dedupe", *map(str, arguments)], input=stdin)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "n": 1}\n{"id": "a", "n": 2}\n{"nodeId": "n", "sequence": 1}\n{}\n{}\n')
    return path


def test_each_identity_passes_once_and_lines_stay_as_they_are(events: Path) -> None:
    result = chsim(events)
    assert result.exit_code == 0
    assert result.stdout == '{"id": "a"}\n{"id": "b", "n": 1}\n{"nodeId": "n", "sequence": 1}\n{}\n{}\n'
    assert result.stderr == ""


def test_standard_input_is_a_dash() -> None:
    assert chsim("-", stdin='{"id": "a"}\n{"id":"a"}\n').stdout == '{"id": "a"}\n'


def test_the_last_line_gets_its_end_and_blank_lines_go() -> None:
    assert chsim("-", stdin='\n  \n{"id": "a"}\r\n{"id": \r"b"}').stdout_bytes == b'{"id": "a"}\r\n{"id": \r"b"}\n'


def test_nothing_in_nothing_out() -> None:
    result = chsim("-", "--stats", stdin="")
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(result.stderr)["accepted_events"] == 0


def test_the_statistics_are_one_json_object_on_stderr(events: Path) -> None:
    assert json.loads(chsim(events, "--stats").stderr) == {
        "accepted_events": 5,
        "dropped_duplicates": 1,
        "current_cache_size": 3,
        "active_window_seconds": 180,
        "durable_ledger": None,
    }


@pytest.mark.parametrize(
    ("options", "seconds"),
    [(["--preset", "high-latency"], 480), (["--window", "4.5", "--max-window", "9"], 4.5)],
)
def test_windows_of_a_preset_or_of_ones_own(events: Path, options: list[str], seconds: float) -> None:
    assert json.loads(chsim(events, *options, "--stats").stderr)["active_window_seconds"] == seconds


def test_a_ledger_recognises_what_another_run_passed_on(events: Path, tmp_path: Path) -> None:
    durable = ("--ledger", tmp_path / "seen", "--capacity", "3", "--stats")
    chsim(events, *durable)
    again = chsim(events, *durable)
    assert again.stdout == "{}\n{}\n"
    assert json.loads(again.stderr)["durable_ledger"] == {
        "stored_identities": 3,
        "max_identities": 3,
        "database_path": str(tmp_path / "seen"),
    }


def test_a_full_ledger_ends_it_with_the_code_after_what_was_claimed(events: Path, tmp_path: Path) -> None:
    durable = ("--ledger", tmp_path / "seen", "--capacity", "2")
    result = chsim(events, *durable)
    assert (result.exit_code, result.stdout) == (1, '{"id": "a"}\n{"id": "b", "n": 1}\n')
    assert "ERR_DEDUPE_IDENTITY_LEDGER_CAPACITY" in result.stderr
    ledger = SqliteIdentityLedger(tmp_path / "seen", 2)
    assert ledger.get_stats().stored_identities == 2
    assert not ledger.claim("a", 1)


@pytest.mark.parametrize(
    ("line", "about"),
    [
        (b"nonsense", "not a JSON object on one line"),
        (b'{"id": "c"} {"id": "d"}', "there is more after column 11"),
        (b'{"id": "c"', "not a JSON object on one line"),
        (b'["id", "c"]', "not a JSON object"),
        (b'"c"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"id": NaN}', "NaN is not JSON"),
        (b'{"a":' * 100_000, "not a JSON object on one line"),
        (b'{"a": ' + b"1" * 10_000 + b"}", "not a JSON object on one line"),
        (b"\x00", "not a JSON object on one line"),
    ],
)
def test_a_line_that_cannot_be_read_ends_it_with_its_number(line: bytes, about: str) -> None:
    result = chsim("-", "--stats", stdin=b'{"id": "a"}\n\n' + line + b'\n{"id": "z"}\n')
    assert (result.exit_code, result.stdout) == (1, '{"id": "a"}\n')
    assert about in result.stderr
    assert "Line 3 is not" in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(result.stderr.splitlines()[0])["accepted_events"] == 1


def test_bytes_that_are_no_utf8_stay_what_they_are() -> None:
    lines = [b'{"id": "\xff"}', b'{"id": "\xfe"}']
    assert chsim("-", stdin=b"\n".join([*lines, lines[0]])).stdout_bytes == b"\n".join(lines) + b"\n"


def test_any_identity_fits_into_the_ledger(tmp_path: Path) -> None:
    lines = [b'{"id": "\xff"}', b'{"id": "\\ud800"}', b'{"id": "\\u0000"}']
    durable = ("--ledger", tmp_path / "seen", "--capacity", "9")
    assert chsim("-", *durable, stdin=b"\n".join(lines * 2)).stdout_bytes == b"\n".join(lines) + b"\n"
    assert chsim("-", *durable, stdin=b"\n".join(lines)).stdout_bytes == b""


@pytest.mark.parametrize(
    "options",
    [
        ["--preset", "aggressive"],
        ["--preset", "standard", "--window", "5", "--max-window", "9"],
        ["--window", "5"],
        ["--max-window", "5"],
        ["--window", "9", "--max-window", "5"],
        ["--window", "0", "--max-window", "5"],
        ["--window", "nan", "--max-window", "5"],
        ["--window", "5", "--max-window", "inf"],
        ["--ledger", "seen"],
        ["--capacity", "5"],
        ["--ledger", "seen", "--capacity", "0"],
        ["--ledger", "seen", "--capacity", "99999999999999999999"],
        ["--ledger", ":memory:", "--capacity", "5"],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(
    events: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(events.parent)
    result = chsim(events, *options)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert [each.name for each in events.parent.iterdir()] == [events.name]


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    assert chsim(tmp_path / "nowhere").exit_code == 2


def test_a_file_that_is_no_ledger_is_refused(events: Path) -> None:
    result = chsim(events, "--ledger", events, "--capacity", "5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not a database" in result.stderr


def test_what_has_arrived_is_passed_on_at_once() -> None:
    command = [sys.executable, "-m", "clickhouse_sim", "dedupe", "-"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b'{"id": "a"}\n', b'{"id": "b"}\n'):
            process.stdin.write(b'{"id": "a"}\n' * 2 + line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_lines_longer_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    lines = [
        json.dumps({"id": str(number), "text": "x" * length})
        for number, length in enumerate((10, 200_000, 65_536, 0))
    ]
    path.write_text("\n".join(lines * 2))
    assert chsim(path).stdout == "\n".join(lines) + "\n"
