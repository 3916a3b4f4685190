"""The language of the twin runs, without the twins."""

from __future__ import annotations

import pytest

from clickhouse_sim.sql.statements import parse_statements
from tests.clickhouse_18.twin_script import Act, Step, parse_script, random_script


def test_every_kind_of_step() -> None:
    script = """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')   # a remark
        r2 insert_deduplicate=0: INSERT INTO t VALUES ('2018-01-01', 1, 'a: b')

        kill r2
        start r2
        settle
    """
    assert parse_script(script) == [
        Step(Act.SQL, "r1", "INSERT INTO t VALUES ('2018-01-01', 1, 'a')"),
        Step(Act.SQL, "r2", "INSERT INTO t VALUES ('2018-01-01', 1, 'a: b')", {"insert_deduplicate": 0}),
        Step(Act.KILL, "r2"),
        Step(Act.START, "r2"),
        Step(Act.SETTLE),
    ]


@pytest.mark.parametrize("line", ["r3: SELECT 1", "r1:", "pause r1", "r1 SELECT 1"])
def test_a_line_that_is_no_step_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse_script(line)


@pytest.mark.parametrize("seed", range(20))
def test_scripts_by_chance_are_read_and_leave_everything_going(seed: int) -> None:
    script = random_script(seed, steps=60)
    assert script == random_script(seed, steps=60)
    steps = parse_script(script)
    for step in steps:
        if step.act is Act.SQL:
            parse_statements(step.sql)
    stopped: set[tuple[str, str]] = set()
    for step in steps:
        what = step.sql.removeprefix("SYSTEM ").partition(" ")
        if what[0] == "STOP":
            stopped.add((step.replica, what[2]))
        elif what[0] == "START":
            stopped.remove((step.replica, what[2]))
        elif "RESTART" in step.sql:
            stopped = {(replica, action) for replica, action in stopped if replica != step.replica}
    assert not stopped
    assert steps[-1].act is Act.SETTLE
    changes = [step for step in steps if step.act in (Act.KILL, Act.START)]
    assert [step.act for step in changes] == [Act.KILL, Act.START] * (len(changes) // 2)


def test_scripts_with_drops_have_some() -> None:
    scripts = [random_script(seed, with_drops=True) for seed in range(5)]
    assert any("DROP PARTITION" in script for script in scripts)
    assert not any("DROP PARTITION" in random_script(seed) for seed in range(5))
