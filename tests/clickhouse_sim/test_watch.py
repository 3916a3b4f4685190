"""`--watch`: what is printed when things change, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.cli import watch
from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cli.main import main
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable

_ROOT = Path(__file__).parents[2]


def listing(*rows: tuple[Any, ...]) -> Listing:
    return Listing(("name", "size"), rows, key=("name",), when_empty="Empty.")


def looks(*answers: Listing | Exception) -> Callable[[], Listing]:
    """One answer a look; after the last one Ctrl-C."""

    waiting = list(answers)

    def look() -> Listing:
        if not waiting:
            raise KeyboardInterrupt
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def watched(*answers: Listing | Exception, output_format: str = "jsonl") -> int:
    with pytest.raises(click.exceptions.Exit) as ended:
        watch.show(looks(*answers), Renderer(output_format), 0.001)
    return ended.value.exit_code


_ROWS = st.dictionaries(st.tuples(st.integers(0, 5)), st.tuples(st.integers(0, 5), st.integers(0, 2)))


@given(_ROWS, _ROWS)
def test_the_changes_make_the_one_of_the_other(before: dict[Any, Any], now: dict[Any, Any]) -> None:
    rebuilt = dict(before)
    for change, row in watch.changes(before, now):
        if change == "gone":
            [key] = [key for key, value in before.items() if value is row and key not in now]
            del rebuilt[key]
        else:
            [key] = [key for key, value in now.items() if value is row]
            assert (change == "changed") == (key in before)
            rebuilt[key] = row
    assert rebuilt == now


def test_in_a_pipe_only_changes_are_printed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = watched(listing(("a", 1), ("b", 1)), listing(("a", 1), ("b", 1)), listing(("b", 2), ("c", 1)))
    assert code == 130
    assert [tuple(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()] == [
        ("new", "a", 1),
        ("new", "b", 1),
        ("gone", "a", 1),
        ("changed", "b", 2),
        ("new", "c", 1),
    ]


def test_json_stays_one_document_and_csv_has_one_header(capsys: pytest.CaptureFixture[str]) -> None:
    watched(listing(("a", 1)), listing(), output_format="json")
    assert [row["change"] for row in json.loads(capsys.readouterr().out)] == ["new", "gone"]
    watched(listing(("a", 1)), listing(), output_format="csv")
    assert capsys.readouterr().out.splitlines() == ['"change","name","size"', '"new","a",1', '"gone","a",1']


def test_people_without_a_moving_terminal_get_the_whole_listing_when_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched(listing(("a", 1)), listing(("a", 1)), listing(("a", 2)), output_format="pretty")
    assert capsys.readouterr().out.count("name") == 2


def test_what_cannot_be_reached_for_a_while_is_told_and_looked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(listing(("a", 1)), ClusterUnreachable("it is not running"), listing(("b", 1))) == 130
    output = capsys.readouterr()
    assert output.err.count("Cannot be seen now: it is not running") == 1
    assert [json.loads(line)["change"] for line in output.out.splitlines()] == ["new", "gone", "new"]


@pytest.mark.parametrize("answers", [[ClusterUnreachable("x")], [listing(), ClusterError("x")]])
def test_other_failures_end_it(answers: list[Listing | Exception]) -> None:
    with pytest.raises(ClusterError):
        watch.show(looks(*answers), Renderer("jsonl"), 0.001)


@pytest.mark.parametrize("arguments", [["queue", "--watch", "t"], ["status", "--watch=0"], ["log", "--watch=x"]])
def test_seconds_must_be_seconds(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--watch" in result.stderr


def test_on_a_terminal_it_is_redrawn_in_place_until_ctrl_c(toy_cluster: Any) -> None:
    controller, terminal = pty.openpty()
    environment = {**os.environ, "CHSIM_DIR": str(toy_cluster.folder.root), "TERM": "xterm", "COLUMNS": "160"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "clickhouse_sim", "status", "--watch", "0.1"],
        cwd=_ROOT,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(terminal)
        said = b""
        deadline = time.monotonic() + 60
        while said.count(b"r2") < 3 and time.monotonic() < deadline:
            said += os.read(controller, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                said += os.read(controller, 65536)
            except OSError:
                break
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(controller)
    assert re.search(rb"\x1b\[\d*A", said), "the cursor goes up to draw again"
    assert b"\x1b[?25h" in said, "the cursor is back in the end"
