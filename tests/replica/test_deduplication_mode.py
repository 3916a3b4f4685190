"""Whether an insert is deduplicated: every cell of the matrix of settings, here and in the real engine."""

from __future__ import annotations

from itertools import product

import pytest

from replica.commands import DeduplicateInsert, DeduplicateInsertSelect, InsertOptions, RowSource
from replica.errors import DeduplicationIsNotPossible
from replica.insert.deduplication_mode import Deduplication, deduplication_of

WINDOW = "replicated_deduplication_window"

# What `deduplicate_insert` says of rows that come as data; `old` is the older switch for that kind of insert.
OF_DATA = {
    (DeduplicateInsert.ENABLE, False): True,
    (DeduplicateInsert.ENABLE, True): True,
    (DeduplicateInsert.DISABLE, False): False,
    (DeduplicateInsert.DISABLE, True): False,
    (DeduplicateInsert.BACKWARD_COMPATIBLE_CHOICE, False): False,
    (DeduplicateInsert.BACKWARD_COMPATIBLE_CHOICE, True): True,
}

# And of the rows of a SELECT, which is stable (or has a token) or not. "data": as if they came as data.
OF_SELECT = {
    (DeduplicateInsertSelect.ENABLE_WHEN_POSSIBLE, True): "data",
    (DeduplicateInsertSelect.ENABLE_WHEN_POSSIBLE, False): False,
    (DeduplicateInsertSelect.ENABLE_EVEN_FOR_BAD_QUERIES, True): "data",
    (DeduplicateInsertSelect.ENABLE_EVEN_FOR_BAD_QUERIES, False): "data",
    (DeduplicateInsertSelect.FORCE_ENABLE, True): True,
    (DeduplicateInsertSelect.FORCE_ENABLE, False): "refused",
    (DeduplicateInsertSelect.DISABLE, True): False,
    (DeduplicateInsertSelect.DISABLE, False): False,
}

Cell = tuple[DeduplicateInsert, bool, DeduplicateInsertSelect, RowSource, str]
CELLS: list[Cell] = list(product(DeduplicateInsert, (False, True), DeduplicateInsertSelect, RowSource, ("", "t")))


def expected(cell: Cell) -> bool | str:
    mode, old, select_mode, source, token = cell
    of_data = OF_DATA[mode, old]
    if source is RowSource.DATA:
        return of_data
    of_select = OF_SELECT[select_mode, source is RowSource.STABLE_SELECT or token != ""]
    return of_data if of_select == "data" else of_select


def options_of(cell: Cell) -> InsertOptions:
    mode, old, select_mode, source, token = cell
    return InsertOptions(
        insert_deduplication_token=token,
        insert_deduplicate=old,
        deduplicate_insert=mode,
        async_insert_deduplicate=not old,
        deduplicate_insert_select=select_mode,
        row_source=source,
    )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell)))
def test_every_cell_of_the_matrix(
    cell: Cell,
) -> None:
    if expected(cell) == "refused":
        with pytest.raises(DeduplicationIsNotPossible, match="ORDER BY ALL"):
            deduplication_of(options_of(cell))
    else:
        assert deduplication_of(options_of(cell)).enabled is expected(cell)


@pytest.mark.parametrize(("mode", "old"), OF_DATA)
def test_an_asynchronous_insert_has_an_older_switch_of_its_own(mode: DeduplicateInsert, old: bool) -> None:
    options = InsertOptions(deduplicate_insert=mode, insert_deduplicate=not old, async_insert_deduplicate=old)
    assert deduplication_of(options, is_async=True).enabled is OF_DATA[mode, old]


def test_the_older_switches_alone_change_nothing() -> None:
    options = InsertOptions(insert_deduplicate=False, async_insert_deduplicate=False)
    assert deduplication_of(options).enabled
    assert deduplication_of(options, is_async=True).enabled


def test_a_window_of_nothing_turns_it_off_whatever_the_settings_say() -> None:
    assert str(deduplication_of(InsertOptions()).in_table(0, WINDOW)) == "off: replicated_deduplication_window = 0"
    off = deduplication_of(InsertOptions(deduplicate_insert=DeduplicateInsert.DISABLE))
    assert off.in_table(0, WINDOW) == off, "the setting that comes first is named"
    assert deduplication_of(InsertOptions()).in_table(1, WINDOW).enabled


def test_a_view_may_do_without() -> None:
    off = InsertOptions(deduplicate_blocks_in_dependent_materialized_views=False)
    on = Deduplication(True, "x")
    assert str(on.in_view(off)) == "off: deduplicate_blocks_in_dependent_materialized_views = 0"
    assert on.in_view(InsertOptions()) == on
    assert not Deduplication(False, "x").in_view(InsertOptions()).enabled, (
        "what the source does not have, a view has not"
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (InsertOptions(), "on: deduplicate_insert = enable"),
        (
            InsertOptions(deduplicate_insert=DeduplicateInsert.BACKWARD_COMPATIBLE_CHOICE, insert_deduplicate=False),
            "off: insert_deduplicate = 0 (deduplicate_insert = backward_compatible_choice)",
        ),
        (
            InsertOptions(row_source=RowSource.UNSTABLE_SELECT),
            "off: deduplicate_insert_select = enable_when_possible, and the SELECT is not stable",
        ),
        (
            InsertOptions("t", row_source=RowSource.UNSTABLE_SELECT),
            "on: deduplicate_insert = enable (deduplicate_insert_select = enable_when_possible, there is a token)",
        ),
    ],
)
def test_one_line_says_which_setting_decided(options: InsertOptions, line: str) -> None:
    assert str(deduplication_of(options)) == line


@pytest.mark.real
@pytest.mark.parametrize("source", RowSource)
def test_the_real_engine_has_the_same_matrix(source: RowSource) -> None:
    session = pytest.importorskip("chdb.session").Session()
    session.query("CREATE DATABASE IF NOT EXISTS d ENGINE = Atomic")
    for number, cell in enumerate(cell for cell in CELLS if cell[3] is source):
        mode, old, select_mode, _, token = cell
        table = f"d.t{source.name}{number}"
        session.query(
            f"CREATE TABLE {table} (k UInt64) ENGINE = MergeTree ORDER BY k "
            "SETTINGS non_replicated_deduplication_window = 100"
        )
        settings = (
            f"async_insert = 0, max_threads = 1, max_insert_threads = 1, deduplicate_insert = '{mode}', "
            f"insert_deduplicate = {int(old)}, deduplicate_insert_select = '{select_mode}', "
            f"insert_deduplication_token = '{token}'"
        )
        rows = {
            RowSource.DATA: "VALUES (1), (2)",
            RowSource.STABLE_SELECT: "SELECT number FROM numbers(2) ORDER BY ALL",
            RowSource.UNSTABLE_SELECT: "SELECT number FROM numbers(2)",
        }[source]
        statement = f"INSERT INTO {table} SETTINGS {settings} {rows}"
        if expected(cell) == "refused":
            with pytest.raises(RuntimeError, match="DEDUPLICATION_IS_NOT_POSSIBLE"):
                session.query(statement)
            continue
        for _ in range(2):
            session.query(statement)
        count = int(str(session.query(f"SELECT count() FROM {table}")))
        assert count == (2 if expected(cell) else 4), cell
    session.close()
