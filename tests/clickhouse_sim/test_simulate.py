"""`chsim simulate`: exit codes, the folder of a run, replay and shrink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clickhouse_sim.cli.main import main
from clickhouse_sim.cli.simulate_commands import PLAN_NAMES
from clickhouse_sim.simulation import verdict
from clickhouse_sim.simulation.history import PLANS, DidNotConverge
from clickhouse_sim.simulation.loop import SimulationError
from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.standard_table import TABLE
from clickhouse_sim.simulation.verdict import judge


def chsim(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["simulate", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of seed 3."""
    runs = tmp_path_factory.mktemp("runs")
    result = chsim("--seed", "3", "--runs", str(runs))
    assert result.exit_code == 0, result.output
    return (runs / "latest").resolve()


def test_the_folder_of_a_run_has_everything(run: Path) -> None:
    assert sorted(path.name for path in run.iterdir()) == [
        "coordinator.jsonl",
        "events.log",
        "history.jsonl",
        "story.html",
        "tape.jsonl",
        "verdict.json",
    ]
    record = json.loads((run / "verdict.json").read_text())
    assert (record["seed"], record["plan"], record["ending"]) == (3, "standard", "held")
    draws = [json.loads(line) for line in (run / "tape.jsonl").read_text().splitlines()]
    assert len(draws) == record["draws"]
    assert set(draws[0]) == {"label", "options", "taken"}
    operations = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    inserts = [each for each in operations if each["asked"].get("what") == "insert"]
    assert {each["outcome"] for each in inserts} <= {"ok", "fail", "unknown"}
    assert sum(each["outcome"] == "ok" for each in inserts) >= len(record["report"]["acknowledged"])


def test_events_stand_in_fixed_columns_with_a_mark_each(run: Path) -> None:
    lines = [line for line in (run / "events.log").read_text().splitlines() if not line.startswith("#")]
    marks = {mark.value for mark in Mark}
    assert len(marks) == len(Mark)
    assert len(lines) > 500
    for line in lines:
        float(line[:12])
        assert line[14] in marks
    assert [float(line[:12]) for line in lines] == sorted(float(line[:12]) for line in lines)


def test_every_request_has_its_reply_in_the_record_of_the_coordinator(run: Path) -> None:
    messages = [json.loads(line) for line in (run / "coordinator.jsonl").read_text().splitlines()]
    asked = [(each["session"], each["xid"]) for each in messages if each["what"] == "request"]
    answered = [(each["session"], each["xid"]) for each in messages if each["what"] == "reply"]
    assert asked == answered


def test_the_story_needs_nothing_from_anywhere(run: Path) -> None:
    page = (run / "story.html").read_text()
    assert "src=" not in page
    assert "{{" not in page
    assert "r1 fetches" in page


def test_a_run_replays_from_its_tape(run: Path, tmp_path: Path) -> None:
    assert chsim("replay", str(run), "--runs", str(tmp_path)).exit_code == 0


def test_a_tape_of_another_program_is_undecided(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "verdict.json").write_text((run / "verdict.json").read_text())
    lines = (run / "tape.jsonl").read_text().splitlines()
    (other / "tape.jsonl").write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    result = chsim("replay", str(other))
    assert result.exit_code == 2
    assert "does not fit" in result.output


def test_a_folder_that_holds_no_run_is_wrong_usage(tmp_path: Path) -> None:
    result = chsim("replay", str(tmp_path))
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.output


def test_recording_changes_nothing() -> None:
    recording = Recording(TABLE)
    recorded = judge(5, PLANS["standard"], recording=recording)
    plain = judge(5, PLANS["standard"])
    assert recorded.report is not None
    assert plain.report is not None
    assert recorded.report.trace_hash == plain.report.trace_hash


@pytest.mark.parametrize(
    ("problem", "exit_code", "said"),
    [
        (PropertyBroken("a promise", "not kept"), 1, "a promise: not kept"),
        (ValueError("what is this"), 1, "no unhandled exception: ValueError: what is this"),
        (ExceptionGroup("several", [PropertyBroken("a promise", "not kept")]), 1, "a promise: not kept"),
        (SimulationError("cannot go on"), 2, "cannot go on"),
        (DidNotConverge("900 s after healing"), 3, "900 s after healing"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    problem: Exception, exit_code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "simulate", _raising(problem))
    result = chsim("--seed", "1", "--format", "pretty", "--runs", str(tmp_path))
    assert result.exit_code == exit_code
    assert said in result.output
    assert chsim("--seeds", "1..3", "--runs", str(tmp_path)).exit_code == exit_code


def _raising(problem: Exception) -> Callable[..., None]:
    def simulate(*arguments: object, **more: object) -> None:
        raise problem

    return simulate


def test_many_seeds_on_two_processes(tmp_path: Path) -> None:
    result = chsim("--seeds", "1..3", "--jobs", "2", "--runs", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "3 seeds, 0 failed" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--seed", "1", "--seeds", "1..2"], ["--seeds", "9..1"], ["--accept"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert chsim(*arguments).exit_code == 2


def test_the_plans_of_the_command_are_those_of_the_simulation() -> None:
    assert tuple(PLANS) == PLAN_NAMES
