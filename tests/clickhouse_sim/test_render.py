"""All output formats, against what ClickHouse itself writes."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.cli.listing import Branch, Listing
from clickhouse_sim.cli.options import FORMATS
from clickhouse_sim.cli.pretty import console_of, picture
from clickhouse_sim.cli.record_formats import RECORD_FORMATS
from clickhouse_sim.cli.render import Renderer

_COLUMNS = ("n", "text", "nothing", "yes", "day", "whole", "list", "map", "nan")
_ROW = (1, "x\ty\\\n\"z'", None, True, datetime.date(2024, 1, 1), 1.0, ["a", "b'c"], {"k": 1}, float("nan"))
_SELECT = (
    "SELECT 1 AS n, 'x\\ty\\\\\\n\"z\\'' AS text, NULL AS nothing, true AS yes, toDate('2024-01-01') AS day,"
    " 1.0 AS whole, ['a', 'b\\'c'] AS list, map('k', 1) AS map, nan AS nan FROM numbers(2)"
)


def written(output_format: str, listing: Listing, capsys: pytest.CaptureFixture[str]) -> str:
    Renderer(output_format).listing(listing)
    return capsys.readouterr().out


def test_every_format_but_pretty_is_a_record_format() -> None:
    assert set(FORMATS) == {"pretty", *RECORD_FORMATS}


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("csv", Listing(_COLUMNS, [_ROW]), capsys) == (
        '"n","text","nothing","yes","day","whole","list","map","nan"\n'
        '1,"x\ty\\\n""z\'",\\N,true,"2024-01-01",1,"[\'a\',\'b\\\'c\']","{\'k\':1}",nan\n'
    )


def test_tsv(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("tsv", Listing(_COLUMNS, [_ROW]), capsys) == (
        "n\ttext\tnothing\tyes\tday\twhole\tlist\tmap\tnan\n"
        "1\tx\\ty\\\\\\n\"z\\'\t\\N\ttrue\t2024-01-01\t1\t['a','b\\'c']\t{'k':1}\tnan\n"
    )


def test_bytes_that_are_no_text_can_be_told_apart(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Raw where ClickHouse writes them raw; in JSON as lone surrogates, which no UTF-8 text spells."""

    def printed(output_format: str, value: Any) -> bytes:
        Renderer(output_format).listing(Listing(("s",), [(value,)]))
        return capsysbinary.readouterr().out

    for value in (b"a\xffb\xc3\xa4", "a\U0010f7ffb\u00e4"):
        assert printed("csv", value) == b'"s"\n"a\xffb\xc3\xa4"\n'
        assert printed("tsv", value) == b"s\na\xffb\xc3\xa4\n"
        assert printed("vertical", value).endswith(b"s: a\xffb\xc3\xa4\n")
        for output_format in ("json", "jsonl"):
            document = printed(output_format, value)
            assert b'{"s": "a\\udcffb\xc3\xa4"}' in document
            [found] = re.findall(rb"{.*}", document)
            assert json.loads(found)["s"].encode("utf-8", "surrogateescape") == b"a\xffb\xc3\xa4"
        assert b"a\\xffb\xc3\xa4" in printed("pretty", value)


def test_vertical(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("vertical", Listing(("a", "long"), [(1, "x"), (None, "y")]), capsys) == (
        "Row 1:\n──────\na:    1\nlong: x\n\nRow 2:\n──────\na:    NULL\nlong: y\n"
    )


@pytest.mark.parametrize("rows", [[], [_ROW], [_ROW, _ROW]])
def test_json_is_one_document_and_jsonl_one_object_a_line(
    rows: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(written("json", Listing(_COLUMNS, rows), capsys))
    assert found == [json.loads(line) for line in written("jsonl", Listing(_COLUMNS, rows), capsys).splitlines()]
    assert len(found) == len(rows)
    assert all(row["nan"] is None and row["list"] == ["a", "b'c"] for row in found)


def test_columns_of_equal_names_are_all_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("tsv", Listing(("a", "a"), [(1, 2)]), capsys) == "a\ta\n1\t2\n"


@pytest.mark.parametrize("output_format", ["json", "csv", "vertical"])
def test_records_are_one_document(output_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is told one by one looks like the listing of all."""
    with Renderer(output_format).records() as tell:
        tell({"a": 1}, "one")
        tell({"a": 2}, "two")
    told = capsys.readouterr().out
    assert told == written(output_format, Listing(("a",), [(1,), (2,)]), capsys)


def test_no_records_are_an_empty_document(capsys: pytest.CaptureFixture[str]) -> None:
    for output_format in FORMATS:
        with Renderer(output_format).records():
            pass
    assert json.loads(capsys.readouterr().out) == []


def test_a_single_record_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer("json").record({"a": [1]}, "one")
    assert json.loads(capsys.readouterr().out) == {"a": [1]}


_VALUES = st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


@given(st.lists(st.tuples(_VALUES, _VALUES), max_size=5))
def test_what_is_written_can_be_read(rows: list[tuple[Any, Any]]) -> None:
    def text(name: str) -> str:
        writer = RECORD_FORMATS[name]()
        return writer.begin(("a", "b")) + "".join(writer.row(row) for row in rows) + writer.end()

    assert [tuple(row.values()) for row in json.loads(text("json"))] == rows
    assert [tuple(json.loads(line).values()) for line in text("jsonl").split("\n")[:-1]] == rows
    spelled = [tuple("\\N" if value is None else str(value) for value in row) for row in rows]
    assert [tuple(row) for row in csv.reader(io.StringIO(text("csv"), newline=""))][1:] == spelled
    fields = [line.split("\t") for line in text("tsv").split("\n")[1:-1]]
    assert [tuple(field if field == "\\N" else _unescaped(field) for field in line) for line in fields] == spelled


def _unescaped(field: str) -> str:
    escapes = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found[1], found[1]), field)


@pytest.mark.real
@pytest.mark.parametrize(
    ("ours", "theirs"), [("csv", "CSVWithNames"), ("tsv", "TSVWithNames"), ("vertical", "Vertical")]
)
def test_the_text_formats_are_clickhouses(ours: str, theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    import chdb

    expected = str(chdb.query(_SELECT, theirs)).replace("ᴺᵁᴸᴸ", "NULL")
    assert written(ours, Listing(_COLUMNS, [_ROW, _ROW]), capsys).rstrip("\n") == expected.rstrip("\n")


# --- for people ----------------------------------------------------------------------------------------------


def pictured(listing: Listing, width: int) -> tuple[list[str], list[str]]:
    target = io.StringIO()
    shown, notes = picture(listing, width)
    console = console_of(target)
    console.width = width
    console.print(shown, crop=False)
    return [line.rstrip() for line in target.getvalue().splitlines()], notes


def test_an_empty_listing_is_only_narrated(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer("pretty").listing(Listing(("a",), [], when_empty="Nothing waits."))
    assert capsys.readouterr() == ("", "Nothing waits.\n")


def test_a_table_that_does_not_fit_goes_without_what_says_nothing_then_without_what_is_spare() -> None:
    listing = Listing(("name", "empty", "spare", "why"), [("r1", None, "x" * 20, "w" * 20)], spare=("spare",))
    lines, notes = pictured(listing, 80)
    assert "empty" in lines[1]
    assert notes == []
    lines, notes = pictured(listing, 56)
    assert "empty" not in lines[1]
    assert "spare" in lines[1]
    lines, notes = pictured(listing, 40)
    assert "spare" not in lines[1]
    assert "w" * 20 in lines[3]
    assert notes == ["Left out for the width: empty, spare; --format vertical shows all."]


def test_a_table_without_spare_columns_becomes_one_value_a_line() -> None:
    columns = tuple(f"column_{number}" for number in range(12))
    lines, _ = pictured(Listing(columns, [tuple("v" * 10 for _ in columns)] * 2), 80)
    assert lines[0] == "Row 1:"
    assert "column_11: vvvvvvvvvv" in lines
    assert "Row 2:" in lines


@given(st.integers(20, 200), st.lists(st.text("ab ", max_size=60), min_size=1, max_size=12))
def test_no_column_is_squeezed(width: int, values: list[str]) -> None:
    """Either the columns stand side by side, each as wide as its value or readable, or one value a line."""
    columns = [f"c{number}" for number in range(len(values))]
    lines, _ = pictured(Listing(columns, [values]), width)
    if lines[0].startswith("╭"):
        assert max(map(len, lines)) <= width
        widths = [len(piece) - 2 for piece in lines[0].strip("╭╮").split("┬")]
        assert all(found >= min(len(value.rstrip()), 28) for found, value in zip(widths, values, strict=True))
    else:
        assert lines[0] == "Row 1:"


def test_a_tree_is_indented_and_cut() -> None:
    tree = [Branch(0, "/t", ""), Branch(1, "a", "first\nsecond"), Branch(2, "b", "x" * 100)]
    lines, _ = pictured(Listing(("path",), [("/t",)], tree=tree), 40)
    assert lines[:2] == ["/t", "  a  first …"]
    assert lines[2] == "    b  " + "x" * 32 + "…"


def test_values_cannot_move_the_cursor() -> None:
    lines, _ = pictured(Listing(("a",), [("\x1b[2Jx\x07",)]), 80)
    assert "\\x1b[2Jx\\x07" in lines[3]


def test_nothing_is_escaped_where_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTerminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    texts = []
    for setting in ("", "1"):
        monkeypatch.setenv("NO_COLOR", setting)
        terminal = FakeTerminal()
        console_of(terminal).print(picture(Listing(("a",), [(1,)]), 80)[0])
        texts.append(terminal.getvalue())
    assert "\x1b" in texts[0]
    assert "\x1b" not in texts[1]
