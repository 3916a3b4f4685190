"""The formats for programs, row by row: JSON, JSON lines, CSV, TSV, and ClickHouse's Vertical for eyes.

Each class writes rows under columns that stay the same: `begin` once, `row` for each, `end`. What they return is
printed as it is. The spelling is that of ClickHouse's JSONEachRow, CSVWithNames, TSVWithNames and Vertical.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from clickhouse_sim.cli.values import clickhouse_text, escaped, is_number, json_text


class RecordFormat(Protocol):
    def begin(self, columns: Sequence[str]) -> str: ...

    def row(self, values: Sequence[Any]) -> str: ...

    def end(self) -> str: ...


class JsonLines:
    """One object a line."""

    def begin(self, columns: Sequence[str]) -> str:
        self._columns = columns
        return ""

    def row(self, values: Sequence[Any]) -> str:
        return f"{json_text(dict(zip(self._columns, values, strict=True)))}\n"

    def end(self) -> str:
        return ""


class JsonArray(JsonLines):
    """One document: an array of objects."""

    def begin(self, columns: Sequence[str]) -> str:
        super().begin(columns)
        self._before = "\n"
        return "["

    def row(self, values: Sequence[Any]) -> str:
        before, self._before = self._before, ",\n"
        return before + super().row(values).rstrip("\n")

    def end(self) -> str:
        return "\n]\n"


class Csv:
    """A line of names, then the rows; text is quoted, NULL is \\N."""

    def begin(self, columns: Sequence[str]) -> str:
        return self.row(columns)

    def row(self, values: Sequence[Any]) -> str:
        return f"{','.join(_csv_field(value) for value in values)}\n"

    def end(self) -> str:
        return ""


class Tsv:
    """A line of names, then the rows, with ClickHouse's backslashes; NULL is \\N."""

    def begin(self, columns: Sequence[str]) -> str:
        return self.row(columns)

    def row(self, values: Sequence[Any]) -> str:
        fields = ("\\N" if value is None else _tsv_field(value) for value in values)
        return "\t".join(fields) + "\n"

    def end(self) -> str:
        return ""


class Vertical:
    """Each value on a line of its own."""

    def begin(self, columns: Sequence[str]) -> str:
        width = max(len(column) for column in columns) + 1
        self._labels = [f"{column}:".ljust(width) for column in columns]
        self._rows = 0
        return ""

    def row(self, values: Sequence[Any]) -> str:
        self._rows += 1
        title = f"Row {self._rows}:"
        lines = [title, "─" * len(title)]
        for label, value in zip(self._labels, values, strict=True):
            lines.append(f"{label} {'NULL' if value is None else clickhouse_text(value)}".rstrip())
        return ("\n" if self._rows > 1 else "") + "\n".join(lines) + "\n"

    def end(self) -> str:
        return ""


RECORD_FORMATS: dict[str, type[RecordFormat]] = {
    "vertical": Vertical,
    "json": JsonArray,
    "jsonl": JsonLines,
    "csv": Csv,
    "tsv": Tsv,
}


def _csv_field(value: Any) -> str:
    if value is None:
        return "\\N"
    text = clickhouse_text(value)
    if is_number(value) or isinstance(value, bool):
        return text
    return '"' + text.replace('"', '""') + '"'


def _tsv_field(value: Any) -> str:
    text = clickhouse_text(value)
    return text if isinstance(value, (list, tuple, dict)) else escaped(text)
