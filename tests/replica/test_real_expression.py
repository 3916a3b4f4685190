"""The model beside the real engine: types, texts, values, orders, partitions, block ids and defaults, compared."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replica.dedup.block_id import block_id, insert_extension
from replica.errors import ClickHouseError
from replica.expression import compile_expression, compile_key, compile_partition_key, complete, sort_block
from replica.expression.syntax import parse, to_text
from replica.partition import PartitionKey
from replica.quoting import string_literal
from replica.schema import Column, DataType, Kind, TableSchema, parse_type

pytestmark = pytest.mark.real

RULES = json.loads(
    (Path(__file__).parent.parent / "data" / "clickhouse-26.9" / "function_types.json").read_text(encoding="utf-8")
)
TYPES: list[str] = RULES["types"]


class Engine:
    """The embedded engine with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        from chdb import session

        self.folder = folder
        self._session = session.Session(str(folder))
        self.run("CREATE DATABASE d ENGINE = Atomic")

    def run(self, sql: str) -> str:
        return str(self._session.query(sql, "TSV").bytes().decode())

    def table(self, sql: str) -> pa.Table:
        answer = self._session.query(sql, "ArrowStream").bytes()
        return pa.ipc.open_stream(answer).read_all()

    def code_or_type(self, expression: str, table: str) -> str | int:
        try:
            return self.run(f"DESCRIBE (SELECT {expression} AS x FROM {table})").split("\t")[1]
        except RuntimeError as refusal:
            return int(str(refusal).split("Code: ")[1].split(".")[0])

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    pytest.importorskip("chdb")
    engine = Engine(tmp_path_factory.mktemp("engine"))
    yield engine
    engine.close()


def schema_of(columns: dict[str, str]) -> TableSchema:
    return TableSchema(tuple(Column(name, parse_type(text)) for name, text in columns.items()))


EXTREMES: dict[Kind, list[Any]] = {
    Kind.FLOAT: [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, 2.0**64, -(2.0**63), 3.0],
    Kind.BOOL: [0, 1],
    Kind.DATE: [0, 1, 19782, 2**16 - 1],
    Kind.DATETIME: [0, 1, 1709168523, 2**32 - 1],
    Kind.STRING: [b"", b"a", b"a\0", b"\xff\xfe", "ä'\\\n".encode()],
}


def some_values(data_type: DataType) -> list[Any]:
    """Values at the edges of a type, in memory form."""
    if not data_type.is_integer:
        return EXTREMES[data_type.kind]
    bits = 8 * data_type.width
    low, high = (0, 2**bits) if data_type.kind is Kind.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    near = {low, low + 1, high - 1, high - 2, -1, 0, 1, 2, 3, 7, 100, 2**53 + 1, -(2**53) - 1}
    return sorted(value for value in near if low <= value < high)


def literal(value: Any, data_type: DataType) -> str:
    """The value as SQL that the engine takes for exactly this value."""
    if value is None:
        return "NULL"
    if data_type.kind is Kind.STRING:
        return f"unhex('{value.hex()}')"
    if data_type.kind is Kind.FLOAT:
        bits = struct.pack("<f" if data_type.width == 4 else "<d", value)
        return f"reinterpretAsFloat{8 * data_type.width}(unhex('{bits.hex()}'))"
    return f"CAST({value}, {string_literal(data_type.with_nullable(False).text)})"


def arrow_of(values: list[Any], data_type: DataType) -> pa.Array:
    if data_type.kind in (Kind.DATE, Kind.DATETIME):
        width = pa.int32() if data_type.kind is Kind.DATE else pa.int64()
        return pa.array(values, width).view(data_type.arrow)
    if data_type.kind is Kind.BOOL:
        return pa.array([None if value is None else bool(value) for value in values], data_type.arrow)
    return pa.array(values, data_type.arrow)


def fill(
    engine: Engine, table: str, schema: TableSchema, rows: list[tuple[Any, ...]], settings: str = ""
) -> pa.Table:
    """Insert the rows as one block; the same block for the model."""
    texts = ["(" + ", ".join(map(literal, row, (c.type for c in schema.columns))) + ")" for row in rows]
    engine.run(f"INSERT INTO {table} {settings} VALUES {', '.join(texts)}")
    arrays = [arrow_of([row[i] for row in rows], column.type) for i, column in enumerate(schema.columns)]
    return pa.table(arrays, schema=schema.arrow_schema)


def create(engine: Engine, name: str, schema: TableSchema, ending: str) -> None:
    columns = ", ".join(f"`{column.name}` {column.type.text}" for column in schema.columns)
    engine.run(f"CREATE TABLE {name} ({columns}) ENGINE = {ending}")


def comparable(values: list[Any]) -> list[Any]:
    """Values of which equal ones are the same: NaN is one, and the zeros are two."""
    return [("float", struct.pack("<d", v) if v == v else "nan") if isinstance(v, float) else v for v in values]


# --- types and texts -----------------------------------------------------------------------------------------


def test_the_table_of_types_is_the_engines(engine: Engine) -> None:
    create(engine, "d.types", schema_of({text: text for text in TYPES}), "Memory")
    for function, rows in RULES["binary"].items():
        for left, row in zip(TYPES, rows, strict=True):
            found = [engine.code_or_type(f"{function}(`{left}`, `{right}`)", "d.types") for right in TYPES]
            assert found == row, (function, left)
    for function, row in RULES["unary"].items():
        assert [engine.code_or_type(f"{function}(`{of}`)", "d.types") for of in TYPES] == row


def random_text(draw: random.Random, depth: int) -> str:
    """An expression as somebody may write it."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(
            [
                "a",
                "`odd name`",
                "`select`",
                "ts",
                "1",
                "-3",
                "0.5",
                "1e25",
                "2.5e-9",
                "'x\\'y'",
                "NULL",
                "true",
                "0x1F",
            ]
        )
    if draw.random() < 0.25:
        return draw.choice(["(%s)", "- %s", "- (%s)", "toDate(%s)", "plus(%s, 1)", "((%s))"]) % random_text(
            draw, depth - 1
        )
    operator = draw.choice(["+", "-", "*", "/", "%", "=", "==", "<>", "<", ">="])
    return f"{random_text(draw, depth - 1)} {operator} {random_text(draw, depth - 1)}"


def test_texts_are_formatted_as_the_engine_does(engine: Engine) -> None:
    draw = random.Random(1)
    for _ in range(400):
        text = random_text(draw, 3)
        query = string_literal(f"SELECT {text}")
        formatted = engine._session.query(f"SELECT formatQuerySingleLine({query})", "RawBLOB").bytes().decode()
        assert to_text(parse(text)) == formatted.removeprefix("SELECT "), text


@pytest.mark.parametrize(
    "number", [1e-6, 1e-7, 9.999e-7, 1e20, 1e21, 123456789012345680.0, 5e-324, 1.7976931348623157e308]
)
def test_floats_are_written_as_the_engine_does(engine: Engine, number: float) -> None:
    formatted = engine.run(f"SELECT formatQuerySingleLine('SELECT {number!r}')").strip()
    assert to_text(parse(repr(number))) == formatted.removeprefix("SELECT ")


# --- values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", ">="])
def test_values_of_every_pair_of_types(engine: Engine, symbol: str) -> None:
    for left in TYPES:
        for right in TYPES:
            schema = schema_of({"a": f"Nullable({left})", "b": f"Nullable({right})"})
            try:
                expression = compile_expression(f"a {symbol} b", schema)
            except ClickHouseError:
                continue
            compare_pairs(engine, schema, expression.text)


def compare_pairs(engine: Engine, schema: TableSchema, text: str) -> None:
    a, b = (column.type for column in schema.columns)
    pairs = [(x, y) for x in [*some_values(a), None] for y in [*some_values(b), None]]
    if "%" in text:
        pairs = [pair for pair in pairs if not is_impossible_division(*pair, a, b)]
    if {a.kind, b.kind} & {Kind.DATE, Kind.DATETIME} and ("+" in text or "-" in text):
        pairs = [pair for pair in pairs if all(value is None or value < 2**63 for value in pair)]
    block = pa.table(
        [arrow_of([p[i] for p in pairs], c.type) for i, c in enumerate(schema.columns)], names=["a", "b"]
    )
    rows = ", ".join(f"({literal(x, a)}, {literal(y, b)})" for x, y in pairs)
    structure = string_literal(f"a {a.text}, b {b.text}")
    wanted = engine.table(f"SELECT {text} AS x FROM values({structure}, {rows})").column("x")
    expression = compile_expression(text, schema)
    found = expression.evaluate(block)
    if expression.type.kind is Kind.DATETIME:
        found, wanted = found.view(pa.int64()), wanted.cast(pa.int64())
    assert comparable(found.to_pylist()) == comparable(wanted.to_pylist()), (text, a.text, b.text)


def is_impossible_division(x: Any, y: Any, a: DataType, b: DataType) -> bool:
    # NULL % 0 is NULL to the model; the engine refuses it or not, depending on the other rows of the block.
    if y is None or Kind.FLOAT in (a.kind, b.kind):
        return False
    return y == 0 or (y == -1 and a.kind is Kind.SIGNED and x == -(2 ** (8 * a.width - 1)))


@pytest.mark.parametrize("text", ["toYYYYMM(a)", "toDate(a)", "a + 1", "a = '2024-02-29'", "a < '1980-01-01'"])
def test_values_of_dates_in_any_zone(engine: Engine, text: str) -> None:
    for of in ("Date", "DateTime", "DateTime('UTC')", "DateTime('Europe/Berlin')", "DateTime('Asia/Kathmandu')"):
        schema = schema_of({"a": of, "b": "UInt8"})
        draw = random.Random(of)
        data_type = schema.column("a").type
        top = 2 ** (8 * data_type.width)
        values = [*some_values(data_type), *(draw.randrange(top) for _ in range(200))]
        rows = ", ".join(f"({literal(v, data_type)}, 0)" for v in values)
        structure = string_literal(f"a {data_type.text}, b UInt8")
        wanted = engine.table(f"SELECT toInt64({text}) AS x FROM values({structure}, {rows})").column("x").to_pylist()
        block = pa.table({"a": arrow_of(values, data_type)})
        result = compile_expression(text, schema).evaluate(block)
        found = result.cast(pa.int32()) if pa.types.is_date(result.type) else result.cast(pa.int64())
        assert found.to_pylist() == wanted, of


# --- orders, partitions, ids ---------------------------------------------------------------------------------

COLUMNS = {
    "i": "UInt32",
    "u": "UInt64",
    "k": "Int64",
    "n": "Nullable(Int16)",
    "f": "Nullable(Float64)",
    "g": "Float32",
    "b": "Bool",
    "d": "Date",
    "t": "DateTime('Europe/Berlin')",
    "s": "String",
    "z": "Nullable(String)",
}
ALLOWED = "SETTINGS allow_nullable_key = 1, allow_floating_point_partition_key = 1"


def random_rows(draw: random.Random, schema: TableSchema, count: int) -> list[tuple[Any, ...]]:
    def value(data_type: DataType) -> Any:
        if data_type.nullable and draw.random() < 0.3:
            return None
        return draw.choice(some_values(data_type.with_nullable(False)))

    return [(number, *(value(column.type) for column in schema.columns[1:])) for number in range(count)]


@pytest.mark.parametrize(
    "key", ["(g, i)", "f", "(z, f)", "(b, s)", "(d, -k)", "(n, t)", "u % 3", "(k % 7, toYYYYMM(t))"]
)
def test_rows_in_the_engines_order(engine: Engine, key: str) -> None:
    schema = schema_of(COLUMNS)
    name = f"d.`ordered by {key}`"
    create(engine, name, schema, f"MergeTree ORDER BY {key} {ALLOWED}")
    block = fill(engine, name, schema, random_rows(random.Random(key), schema, 80))
    wanted = engine.table(f"SELECT i FROM {name} SETTINGS max_threads = 1").column("i").to_pylist()
    assert sort_block(block, compile_key(key, schema, allow_nullable_key=True)).column("i").to_pylist() == wanted


@pytest.mark.parametrize(
    "key",
    [
        *("", "k % 255", "u % 3", "(k % 7) + 1", "d", "t", "toYYYYMM(t)", "toDate(t)"),
        *("s", "z", "n", "(n, b)", "f", "g", "(d, s)", "k = 0", "-k"),
    ],
)
def test_partitions_and_block_ids(engine: Engine, key: str) -> None:
    schema = schema_of(COLUMNS)
    name = f"partitioned by {key}"
    by = f"PARTITION BY {key}" if key else ""
    ending = f"MergeTree {by} ORDER BY tuple() {ALLOWED}, non_replicated_deduplication_window = 1000"
    create(engine, f"d.`{name}`", schema, ending)
    rows = random_rows(random.Random(key), schema, 60)
    block = fill(engine, f"d.`{name}`", schema, rows, "SETTINGS max_partitions_per_insert_block = 0")
    pieces = PartitionKey(
        compile_partition_key(key, schema, allow_nullable_key=True, allow_floating_point_partition_key=True)
    ).split(block)
    logged = engine.table(f"SELECT _partition_id AS p, groupArray(i) AS i FROM d.`{name}` GROUP BY p").to_pylist()
    assert {each: sorted(piece.column("i").to_pylist()) for each, piece in pieces} == {
        row["p"] if isinstance(row["p"], str) else row["p"].decode(): sorted(row["i"]) for row in logged
    }
    text = insert_extension(block, schema, 0)
    data_path = Path(engine.run(f"SELECT data_paths[1] FROM system.tables WHERE name = '{name}'").strip())
    lines = [
        line.split("\t")
        for log in sorted((data_path / "deduplication_logs").iterdir())
        for line in log.read_text().splitlines()
    ]
    assert {line[2] for line in lines} == {block_id(each, text) for each, _ in pieces}


# --- defaults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "default"),
    [
        *(("UInt8", "300"), ("UInt8", "a"), ("UInt8", "a = 300"), ("Int8", "a * 3"), ("UInt16", "1.7")),
        *(("Float32", "a / 3"), ("Bool", "a"), ("Int64", "-0.0"), ("Nullable(Int32)", "a % 7")),
        *(("String", "a + 1"), ("String", "'it''s'"), ("Date", "'2020-01-05'"), ("Date", "5"), ("DateTime", "5")),
        *(("DateTime", "'2020-01-05 01:02:03'"), ("DateTime", "toDate('2020-01-05')")),
        ("UInt64", "toYYYYMM(toDate('2020-01-05'))"),
    ],
)
def test_defaults(engine: Engine, text: str, default: str) -> None:
    schema = TableSchema((Column("a", parse_type("Int64")), Column("x", parse_type(text), default)))
    name = f"d.`{text} default {default}`"
    engine.run(f"CREATE TABLE {name} (a Int64, x {text} DEFAULT {default}) ENGINE = MergeTree ORDER BY a")
    engine.run(f"INSERT INTO {name} (a) VALUES (-300), (-7), (0), (5), (40000)")
    wanted = engine.table(f"SELECT x FROM {name} ORDER BY a").column("x")
    found = complete(pa.table({"a": pa.array([-300, -7, 0, 5, 40000], pa.int64())}), schema).column("x")
    if found.type != wanted.type:
        found, wanted = found.cast(pa.int64() if pa.types.is_timestamp(found.type) else wanted.type), wanted
        wanted = wanted.cast(found.type)
    assert comparable(found.to_pylist()) == comparable(wanted.to_pylist())
