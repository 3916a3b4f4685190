"""INSERT … SELECT and INSERT … FORMAT: where the rows come from, and what that means for deduplication."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from clickhouse_sim.sql.inline_data import without_inline_data
from clickhouse_sim.sql.insert import InsertFormat, InsertSelect, InsertValues
from clickhouse_sim.sql.selected import selected_blocks
from clickhouse_sim.sql.statements import first_words, parse_statements
from replica.commands import ColumnDefinition, DeduplicateInsert, DeduplicateInsertSelect, InsertOptions, RowSource
from replica.errors import NumberOfColumnsDoesntMatch, SqlSyntaxError
from replica.schema import TableSchema

CREATE = (
    "CREATE TABLE t (id UInt64, name Nullable(String), day Date DEFAULT '2024-01-01') "
    "ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}') ORDER BY id"
)


@pytest.fixture
def cluster(toy_cluster: Any) -> Any:
    assert toy_cluster.chsim("sql", CREATE).exit_code == 0
    return toy_cluster


def select_of(text: str) -> InsertSelect:
    (statement,) = parse_statements(text)
    assert isinstance(statement, InsertSelect)
    return statement


# --- SELECT --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "source"),
    [
        ("SELECT id FROM t ORDER BY ALL", RowSource.STABLE_SELECT),
        ("SELECT id FROM t order by all", RowSource.STABLE_SELECT),
        ("WITH 1 AS x SELECT x ORDER BY ALL", RowSource.STABLE_SELECT),
        ("SELECT id FROM t ORDER BY id", RowSource.UNSTABLE_SELECT),
        ("SELECT id FROM t ORDER BY `all`", RowSource.UNSTABLE_SELECT),
        ("SELECT id FROM (SELECT id FROM t ORDER BY ALL)", RowSource.UNSTABLE_SELECT),
        ("SELECT id FROM t", RowSource.UNSTABLE_SELECT),
    ],
)
def test_only_order_by_all_makes_a_select_stable(select: str, source: RowSource) -> None:
    assert select_of(f"INSERT INTO t (id) {select}").options.row_source is source


def test_settings_stand_before_the_select() -> None:
    settings = "deduplicate_insert = 'disable', deduplicate_insert_select = 'force_enable'"
    statement = select_of(f"INSERT INTO d.t (a, b) SETTINGS {settings} SELECT 1, 2")
    assert (statement.database, statement.table, statement.columns) == ("d", "t", ("a", "b"))
    assert statement.options == InsertOptions(
        deduplicate_insert=DeduplicateInsert.DISABLE,
        deduplicate_insert_select=DeduplicateInsertSelect.FORCE_ENABLE,
        row_source=RowSource.UNSTABLE_SELECT,
    )


def test_settings_may_stand_after_the_select() -> None:
    statement = select_of("INSERT INTO t SELECT (1, 2), settings FROM u ORDER BY ALL SETTINGS insert_deduplicate = 0")
    assert statement.options == InsertOptions(insert_deduplicate=False, row_source=RowSource.STABLE_SELECT)
    with pytest.raises(SqlSyntaxError, match="given twice"):
        select_of("INSERT INTO t SETTINGS insert_deduplicate = 0 SELECT 1 SETTINGS insert_deduplicate = 0")


def test_the_columns_of_a_select_are_taken_in_order(cluster: Any) -> None:
    cluster.records("sql", "INSERT INTO t (id, name) VALUES (1, 'a'), (2, NULL)")
    cluster.records("sql", "INSERT INTO t (name, id) SELECT upper(name), id + 10 FROM t ORDER BY ALL")
    assert cluster.records("sql", "SELECT id, name FROM t ORDER BY id") == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": None},
        {"id": 11, "name": "A"},
        {"id": 12, "name": None},
    ]
    assert cluster.servers["r1"].options[-1].row_source is RowSource.STABLE_SELECT


def test_a_select_of_nothing_inserts_nothing(cluster: Any) -> None:
    result = cluster.chsim("sql", "INSERT INTO t SELECT * FROM t")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no rows" in result.stderr


def test_a_select_of_another_width_is_refused(cluster: Any) -> None:
    result = cluster.chsim("sql", "INSERT INTO t (id, name) SELECT 1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "1 columns, and 2 are to be filled (id, name)" in result.stderr


def test_what_a_query_made_readable_is_stored_as_it_was() -> None:
    schema = TableSchema.from_definitions(
        [ColumnDefinition("s", "String"), ColumnDefinition("at", "DateTime('America/New_York')")]
    )
    summer = pa.array(["2024-07-01 12:00:00"]).cast(pa.timestamp("s"))
    (block,) = selected_blocks(pa.table({"x": ["é"], "y": summer}), ["s", "at"], schema)
    assert block.column("s").to_pylist() == ["é".encode()]
    assert block.column("at").cast(pa.int64()).to_pylist() == [1719849600], "noon in New York"
    with pytest.raises(NumberOfColumnsDoesntMatch):
        selected_blocks(pa.table({"x": ["é"]}), [], schema)


def test_bytes_that_are_no_text_come_through_a_select(cluster: Any) -> None:
    cluster.records("sql", r"INSERT INTO t (id, name) VALUES (1, '\xff\xc3\xa9')")
    cluster.records("sql", "INSERT INTO t (id, name) SELECT 2, name FROM t")
    stored = [block.column("name").to_pylist() for block in cluster.servers["r1"].blocks["t"]]
    assert stored == [[b"\xff\xc3\xa9"], [b"\xff\xc3\xa9"]]


# --- FORMAT --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "statement", "data"),
    [
        ("INSERT INTO t FORMAT CSV\n1,'a\n2,;b\n", "INSERT INTO t FORMAT CSV", "1,'a\n2,;b\n"),
        ('INSERT INTO t FORMAT JSONEachRow {"id": 1}', "INSERT INTO t FORMAT JSONEachRow", '{"id": 1}'),
        ("SELECT 1; INSERT INTO t (a) format CSV\n\n1", "SELECT 1; INSERT INTO t (a) format CSV", "\n1"),
        ("INSERT INTO t -- FORMAT CSV\nFORMAT CSV 1", "INSERT INTO t -- FORMAT CSV\nFORMAT CSV", "1"),
        ("INSERT INTO t FORMAT CSV", "INSERT INTO t FORMAT CSV", None),
        ("INSERT INTO t FORMAT CSV;\n", "INSERT INTO t FORMAT CSV;\n", None),
    ],
)
def test_data_begin_behind_the_format_and_go_on_to_the_end(text: str, statement: str, data: str | None) -> None:
    assert without_inline_data(text) == (statement, data)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO format VALUES (1)",
        "INSERT INTO d.format VALUES (1)",
        "INSERT INTO TABLE format (x) VALUES ('FORMAT CSV')",
        "INSERT INTO t (format, x) VALUES (1, 2)",
        "INSERT INTO t VALUES ('a FORMAT CSV 1')",
        "INSERT INTO t SELECT format FROM u",
        "SELECT format FROM t",
        "INSERT INTO t FORMAT Values (1)",
        "INSERT INTO t FORMAT",
    ],
)
def test_a_name_is_no_keyword(text: str) -> None:
    assert without_inline_data(text) == (text, None)


def test_format_values_is_values() -> None:
    (statement,) = parse_statements("INSERT INTO t FORMAT Values (1), (2)")
    assert isinstance(statement, InsertValues)
    assert len(statement.rows) == 2


def test_only_the_statement_before_the_data_has_them() -> None:
    text = "INSERT INTO t VALUES (1); INSERT INTO u (a) FORMAT CSV\n'x; y\n"
    _, statement = parse_statements(text)
    assert isinstance(statement, InsertFormat)
    assert (statement.table, statement.columns, statement.format, statement.data) == ("u", ("a",), "CSV", "'x; y\n")
    assert first_words(text) == ["INSERT INTO t VALUES (1)", "INSERT INTO u (a) FORMAT CSV"]
    with pytest.raises(SqlSyntaxError, match="the end of the statement"):
        parse_statements("INSERT INTO t FORMAT CSV SETTINGS x = 1; SELECT 1".replace("CSV SETTINGS", "/**/CSV/**/"))


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("CSV", '1,"it\'s, ok;"\n2,\\N\n'),
        ("CSVWithNames", 'name,id\n"it\'s, ok;",1\n\\N,2\n'),
        ("JSONEachRow", '{"id": 1, "name": "it\'s, ok;"}\n{"id": 2, "name": null}\n'),
    ],
)
def test_every_format_of_text(cluster: Any, format: str, data: str) -> None:
    statement = f"INSERT INTO t (id, name) FORMAT {format}"
    expected = [{"id": 1, "name": "it's, ok;"}, {"id": 2, "name": None}]
    cluster.records("sql", f"{statement}\n{data}")
    assert cluster.records("sql", "SELECT id, name FROM t ORDER BY id") == expected
    result = cluster.chsim("sql", statement, stdin=data)
    assert '"status": "duplicate"' in result.stdout, "from standard input it is the same block"


def test_columns_that_the_data_lack_get_their_defaults_before_anything_is_hashed(cluster: Any) -> None:
    cluster.records("sql", 'INSERT INTO t FORMAT JSONEachRow {"id": 1}')
    assert cluster.records("sql", "SELECT toString(day) AS day FROM t") == [{"day": "2024-01-01"}]


# --- what is told --------------------------------------------------------------------------------------------


def test_chsim_insert_takes_settings(cluster: Any) -> None:
    result = cluster.chsim(
        "insert", "t", "-", "--input-format", "jsonl", "--setting", "deduplicate_insert=disable", stdin='{"id": 1}\n'
    )
    assert result.exit_code == 0
    assert cluster.servers["r1"].options == [InsertOptions(deduplicate_insert=DeduplicateInsert.DISABLE)]


@pytest.mark.parametrize("setting", ["deduplicate_insert", "deduplicate_insert=perhaps", "nonsense=1"])
def test_chsim_insert_refuses_what_is_no_setting(cluster: Any, setting: str) -> None:
    result = cluster.chsim("insert", "t", "-", "--input-format", "jsonl", "--setting", setting, stdin='{"id": 1}\n')
    assert result.exit_code in (1, 2)
    assert setting.partition("=")[0] in result.stderr
    assert cluster.servers["r1"].options == []
