"""ALTER TABLE: its grammar, and `chsim sql` with it."""

from __future__ import annotations

import pytest

from clickhouse_sim.sql.statements import parse_statements
from replica.commands import AlterSettings, Command, from_json, to_json
from replica.errors import BadArguments, ClickHouseError, NotImplementedInModel, SqlSyntaxError

STATEMENTS = [
    ("ALTER TABLE t MODIFY SETTING a = 1", AlterSettings("default", "t", {"a": "1"})),
    ("alter table db.`a t` modify setting a = 1, b = 'x';", AlterSettings("db", "a t", {"a": "1", "b": "x"})),
    ("ALTER TABLE t RESET SETTING a", AlterSettings("default", "t", reset=("a",))),
    ("ALTER TABLE t RESET SETTING a, b", AlterSettings("default", "t", reset=("a", "b"))),
]


@pytest.mark.parametrize(("text", "command"), STATEMENTS)
def test_statements(text: str, command: Command) -> None:
    assert parse_statements(text) == [command]
    assert from_json(to_json(command)) == command


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("ALTER DATABASE d MODIFY SETTING a = 1", NotImplementedInModel, "ALTER DATABASE: the model alters tables"),
        ("ALTER TABLE t ON CLUSTER c MODIFY SETTING a = 1", NotImplementedInModel, "every living replica"),
        ("ALTER TABLE", SqlSyntaxError, "the name of a table"),
        ("ALTER TABLE t", SqlSyntaxError, "one of MODIFY SETTING, RESET SETTING"),
        ("ALTER TABLE t ADD COLUMN c Int8", NotImplementedInModel, "ALTER TABLE … ADD COLUMN: the model has MODIFY"),
        ("ALTER TABLE t MODIFY SETTING", SqlSyntaxError, "the name of a setting"),
        ("ALTER TABLE t MODIFY SETTING a", SqlSyntaxError, "= after the setting a"),
        ("ALTER TABLE t MODIFY SETTING a = 1, a = 2", SqlSyntaxError, "setting a is given twice"),
        ("ALTER TABLE t MODIFY SETTING a = 1, RESET SETTING b", SqlSyntaxError, "="),
        ("ALTER TABLE t RESET SETTING a, a", BadArguments, "setting a is given twice"),
        ("ALTER TABLE t RESET SETTING a = 1", SqlSyntaxError, "one action at a time"),
    ],
)
def test_what_cannot_be_read(text: str, error: type[ClickHouseError], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        parse_statements(text)
