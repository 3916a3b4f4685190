"""Scripted stories: those that come with the project, and how one is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from clickhouse_sim.cli.main import main
from clickhouse_sim.simulation.errors import ScenarioError
from clickhouse_sim.simulation.scenario import Scenario

STORIES = sorted((Path(__file__).parent.parent.parent / "scenarios").glob("*.txt"))


def play(story: Path, runs: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of `chsim simulate --scenario`."""
    result = CliRunner().invoke(main, ["simulate", "--scenario", str(story), "--runs", str(runs), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_stories_of_the_project_go_as_their_golden_transcripts_say(story: Path, tmp_path: Path) -> None:
    assert story.with_suffix(".golden").exists()
    exit_code, output = play(story, tmp_path)
    assert exit_code == 0, output


def test_an_expectation_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    story = tmp_path / "wrong.txt"
    story.write_text("A title\nalice inserts block 1 into r1 -> duplicate\n")
    exit_code, output = play(story, tmp_path)
    assert exit_code == 1
    assert "line 2" in output
    assert "it was stored" in output


@pytest.mark.parametrize(
    ("expectation", "but"),
    [
        ("block 1 is not on r1", "r1 has its rows [1, 1, 1, 1] times"),
        ("block 2 is once on r1", "r1 has its rows [0, 0, 0, 0] times"),
        ("r1 has the parts 0_9_9_0", "it has 0_0_0_0 1_0_0_0"),
        ("the queue of r2 has 3 entries", "it has 0"),
        ("r1 is read-only", "it is not"),
    ],
)
def test_each_expectation_can_fail(expectation: str, but: str, tmp_path: Path) -> None:
    story = tmp_path / "wrong.txt"
    story.write_text(f"A title\nalice inserts block 1 into r1\neverything is done\n{expectation}\n")
    exit_code, output = play(story, tmp_path)
    assert exit_code == 1
    assert but in output


def test_another_transcript_than_the_golden_one_fails_until_it_is_accepted(tmp_path: Path) -> None:
    story, golden = tmp_path / "story.txt", tmp_path / "story.golden"
    story.write_text("A title\nalice inserts block 1 into r1\n")
    golden.write_text("A title\n  alice inserts block 2 into r1\n")
    exit_code, output = play(story, tmp_path)
    assert exit_code == 1
    assert "line 2 of" in output
    assert play(story, tmp_path, "--accept")[0] == 0
    assert play(story, tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("Title\nr1 explodes", "line 2: 'r1 explodes' is no step"),
        ("Title\nr9 is killed", "line 2: there is no replica r9"),
        ("Title\nalice inserts block 1 into r9", "line 2: there is no replica r9"),
        ("Title\nr1 is killed -> done", "line 2: only what a client asks has an outcome"),
        ("Title\nalice inserts block 1 into r1 -> gone", "line 2: 'gone' is no outcome"),
        ("Title\nreplicas r1\nreplicas r2", "line 3: replicas may stand once"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        Scenario.parse(text)


def test_a_scenario_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    story = tmp_path / "wrong.txt"
    story.write_text("Title\nalice asks r1: FROBNICATE TABLE t\n")
    exit_code, output = play(story, tmp_path)
    assert exit_code == 2
    assert "line 2" in output


def test_comments_and_empty_lines_say_nothing() -> None:
    scenario = Scenario.parse("# who\n\nTitle # not part of it\nr1 is killed  # at once\n")
    assert scenario.title == "Title"
    assert [step.kind for step in scenario.steps] == ["crash"]
