"""Random tables and rows, inserted into the real engine: it logs the block ids that the model computes."""

from __future__ import annotations

import random
import string
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickhouse_sim.block_ids import ids_of_block
from clickhouse_sim.formats.files import Reading, read_blocks
from clickhouse_sim.sql.insert import InsertValues
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import CreateTable
from replica.expression import sort_block
from replica.schema import conform
from replica.schema.types import DataType, Kind, parse_type
from replica.table_structure import TableStructure
from scripts.check_block_ids import mismatch, structure_and_block

pytestmark = pytest.mark.real

SCHEMAS = 120
SIMPLE = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)),
    *("Float32", "Float64", "BFloat16", "Bool", "Date", "Date32", "DateTime", "DateTime('Asia/Kathmandu')"),
    *("DateTime64(0)", "DateTime64(2, 'UTC')", "DateTime64(3)", "DateTime64(6, 'Europe/Berlin')", "DateTime64(9)"),
    *("Decimal(5, 2)", "Decimal(18, 4)", "Decimal(38, 10)", "Decimal(76, 20)", "UUID", "IPv4", "IPv6", "String"),
    *("FixedString(1)", "FixedString(5)", "Enum8('a' = -5, 'b\\'c' = 7)", "Enum16('x' = 1000, 'ä' = -2)", "Time"),
    *("Time64(3)", "String", "String", "Point", "Ring", "SimpleAggregateFunction(max, UInt64)"),
]
IN_LOW_CARDINALITY = ["String", "FixedString(3)", "UInt8", "Int64", "UInt128", "Float64", "Date", "DateTime", "UUID"]
NOT_NULLABLE = ("Ring", "SimpleAggregateFunction")


class Engine:
    """The embedded engine, and the ids that it logs."""

    def __init__(self, folder: Path) -> None:
        from chdb import session

        self._session = session.Session(str(folder))
        self._run("CREATE DATABASE d ENGINE = Atomic")

    def _run(self, sql: str) -> str:
        return str(self._session.query(sql, "TSV"))

    def ids(self, columns: list[tuple[str, str]], rows: str, partition_by: str = "tuple()") -> list[str]:
        """The ids of one INSERT of rows in TSV."""
        self.insert(columns, rows, partition_by, "tuple()")
        return self._logged()

    def _logged(self) -> list[str]:
        (path,) = self._run("SELECT data_paths[1] FROM system.tables WHERE database = 'd' AND name = 't'").split()
        logs = sorted((Path(path) / "deduplication_logs").iterdir())
        return [line.split("\t")[2] for log in logs for line in log.read_text().splitlines()]

    def ids_of(self, columns: str, data: str) -> list[str]:
        """The ids of one INSERT into a table with these columns; `data` is what follows its settings."""
        self._run("DROP TABLE IF EXISTS d.t SYNC")
        ending = "ENGINE = MergeTree ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 100"
        self._run(f"CREATE TABLE d.t ({columns}) {ending}")
        self._run(f"INSERT INTO d.t SETTINGS input_format_parallel_parsing = 0 {data}")
        return self._logged()

    def insert(self, columns: list[tuple[str, str]], rows: str, partition_by: str, order_by: str) -> None:
        """A new table d.t of the rows."""
        listed = ", ".join(f"{name} {text}" for name, text in columns)
        self._run("DROP TABLE IF EXISTS d.t SYNC")
        self._run(
            f"CREATE TABLE d.t ({listed}) ENGINE = MergeTree PARTITION BY {partition_by} ORDER BY {order_by}"
            " SETTINGS non_replicated_deduplication_window = 100, allow_nullable_key = 1,"
            " allow_floating_point_partition_key = 1"
        )
        self._run(f"INSERT INTO d.t SETTINGS input_format_parallel_parsing = 0 FORMAT TSV\n{rows}")

    def column(self, name: str) -> list[str]:
        """The column of d.t, in the order of the part."""
        return self._run(f"SELECT {name} FROM d.t SETTINGS max_threads = 1").split()

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    pytest.importorskip("chdb")
    engine = Engine(tmp_path_factory.mktemp("engine"))
    engine._run("SET allow_suspicious_low_cardinality_types = 1")
    yield engine
    engine.close()


def random_type(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        text = chance.choice(SIMPLE)
        can = not text.startswith(NOT_NULLABLE)
        return f"Nullable({text})" if can and chance.random() < 0.3 else text
    if kind < 0.5:
        text = chance.choice(IN_LOW_CARDINALITY)
        return f"LowCardinality(Nullable({text}))" if chance.random() < 0.4 else f"LowCardinality({text})"
    if kind < 0.7:
        return f"Array({random_type(chance, depth - 1)})"
    if kind < 0.85:
        elements = [random_type(chance, depth - 1) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.5:
            elements = [f"`n {place}` {each}" for place, each in enumerate(elements)]
        text = f"Tuple({', '.join(elements)})"
        return f"Nullable({text})" if chance.random() < 0.2 else text
    key = chance.choice(["String", "UInt16", "LowCardinality(String)", "Date", "UUID", "FixedString(2)", "Int128"])
    return f"Map({key}, {random_type(chance, depth - 1)})"


def random_value(chance: random.Random, data_type: DataType) -> Any:
    """A value as files of vectors have it."""
    if data_type.nullable and chance.random() < 0.3:
        return None
    data_type = data_type.value_type
    text = data_type.base
    match data_type.kind:
        case Kind.UNSIGNED | Kind.SIGNED | Kind.WIDE:
            bits = 8 * data_type.width
            low = 0 if text.startswith("U") else -(2 ** (bits - 1))
            return str(chance.choice([low, low + 2**bits - 1, 0, 1, chance.randrange(low, low + 2**bits)]))
        case Kind.FLOAT | Kind.BFLOAT:
            return random_float(chance, data_type)
        case Kind.BOOL:
            return chance.random() < 0.5
        case Kind.DATE:
            return str(np.datetime64(chance.choice([0, 65535, chance.randrange(65536)]), "D"))
        case Kind.DATE32:
            return str(np.datetime64(chance.randrange(-25567, 120529), "D"))
        case Kind.DATETIME:
            seconds = chance.randrange(86_400, 2**32 - 86_400)
            return str(np.datetime64(seconds, "s")).replace("T", " ")
        case Kind.DATETIME64:
            moment = np.datetime64(chance.randrange(-2_000_000_000, 8_000_000_000), "s")
            digits = text[len("DateTime64(")]
            fraction = "".join(chance.choices(string.digits, k=int(digits)))
            return f"{moment}".replace("T", " ") + (f".{fraction}" if fraction else "")
        case Kind.DECIMAL:
            precision, scale = (int(part) for part in text[len("Decimal(") : -1].split(","))
            digits = "".join(chance.choices(string.digits, k=chance.randint(1, precision - scale)))
            fraction = "".join(chance.choices(string.digits, k=scale))
            return f"{chance.choice(['', '-'])}{digits}.{fraction}"
        case Kind.UUID:
            return str(uuid.UUID(int=chance.getrandbits(128)))
        case Kind.IPV4:
            return ".".join(str(chance.randrange(256)) for _ in range(4))
        case Kind.IPV6:
            groups = (f"{chance.randrange(65536):x}" for _ in range(8))
            return chance.choice(["::", "::1", "::ffff:1.2.3.4", ":".join(groups)])
        case Kind.ENUM:
            return chance.choice(["a", "b'c"] if "b" in text else ["x", "ä"])
        case Kind.STRING:
            return chance.choice(["", "a", "ä✓\t\n", "'\\\"", "\0x", "z" * chance.randrange(40)])
        case Kind.FIXED_STRING:
            return "".join(chance.choices("ab\0'\\\t", k=chance.randint(0, data_type.width)))
        case Kind.TIME:
            fraction = ".125" if "64" in text else ""
            return f"{chance.randrange(1000):02}:{chance.randrange(60):02}:{chance.randrange(60):02}{fraction}"
        case Kind.ARRAY:
            return [random_value(chance, data_type.nested[0]) for _ in range(chance.choice([0, 0, 1, 2, 5]))]
        case Kind.TUPLE:
            return [random_value(chance, each) for each in data_type.nested]
        case Kind.MAP:
            pairs = [[random_value(chance, each) for each in data_type.nested] for _ in range(chance.randrange(4))]
            return list({str(pair[0]): pair for pair in pairs}.values())
    raise AssertionError(text)


def random_float(chance: random.Random, data_type: DataType) -> str | float:
    special = chance.choice(["nan", "inf", "-inf", "-0", "0", "1.5", ""])
    if special:
        return special
    if data_type.kind is Kind.BFLOAT:
        return chance.choice([3.140625, -2.0, 1.0078125])
    if data_type.width == 4:
        bits = chance.getrandbits(31) % 0x7F000000
        return str(np.frombuffer(struct.pack("<I", bits), np.float32)[0])
    return repr(chance.uniform(-1e300, 1e300))


def tsv(value: Any, data_type: DataType, nested: bool = False) -> str:
    """The value as TSV has it; inside another one, texts stand in quotes."""
    if value is None:
        return "NULL" if nested else "\\N"
    data_type = data_type.value_type
    match data_type.kind:
        case Kind.ARRAY:
            return f"[{','.join(tsv(each, data_type.nested[0], True) for each in value)}]"
        case Kind.TUPLE:
            parts = [tsv(each, own, True) for each, own in zip(value, data_type.nested, strict=True)]
            return f"({','.join(parts)})"
        case Kind.MAP:
            key, item = data_type.nested
            return f"{{{','.join(f'{tsv(name, key, True)}:{tsv(each, item, True)}' for name, each in value)}}}"
        case Kind.BOOL:
            return "true" if value else "false"
    text = str(value)
    bare = data_type.is_number or data_type.kind in (Kind.WIDE, Kind.BFLOAT, Kind.DECIMAL)
    if bare:
        return text
    return f"'{escaped(text)}'" if nested else escaped(text)


def escaped(text: str) -> str:
    codes = {"\\": "\\\\", "'": "\\'", "\t": "\\t", "\n": "\\n", "\0": "\\0"}
    return "".join(codes.get(character, character) for character in text)


@pytest.mark.parametrize("seed", range(SCHEMAS))
def test_random_tables(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    columns = [(f"c{place}", random_type(chance, 3)) for place in range(chance.randint(1, 5))]
    types = [parse_type(text) for _, text in columns]
    rows = [[random_value(chance, each) for each in types] for _ in range(chance.choice([1, 2, 7, 40]))]
    lines = ("\t".join(tsv(value, each) for value, each in zip(row, types, strict=True)) for row in rows)
    vector = {"columns": columns, "rows": rows, "partition_by": "", "settings": {}}
    vector["ids"] = engine.ids(columns, "".join(f"{line}\n" for line in lines))
    assert mismatch(vector) == "", columns


@pytest.mark.parametrize("seed", range(SCHEMAS))
def test_random_partition_keys(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    columns = [(f"c{place}", random_type(chance, 2)) for place in range(2)]
    if "Nullable(IPv4)" in dict(columns).values():
        pytest.skip("refused by name: its ids have quotes and dots")
    partition_by = chance.choice(["c0", "(c0, c1)", "(c1, c0)"])
    types = [parse_type(text) for _, text in columns]
    rows = [[random_value(chance, each) for each in types] for _ in range(chance.choice([1, 3, 8]))]
    lines = ("\t".join(tsv(value, each) for value, each in zip(row, types, strict=True)) for row in rows)
    vector = {"columns": columns, "rows": rows, "partition_by": partition_by, "settings": {}}
    vector["ids"] = engine.ids(columns, "".join(f"{line}\n" for line in lines), partition_by)
    assert mismatch(vector) == "", columns


@pytest.mark.parametrize("seed", range(SCHEMAS))
def test_random_sorting_keys(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    columns = [("c", random_type(chance, 2)), ("i", "UInt32")]
    if columns[0][1].startswith("SimpleAggregateFunction"):
        pytest.skip("refused in a sorting key")
    types = [parse_type(text) for _, text in columns]
    rows = [[random_value(chance, types[0]), number] for number in range(30)]
    lines = ("\t".join(tsv(value, each) for value, each in zip(row, types, strict=True)) for row in rows)
    engine.insert(columns, "".join(f"{line}\n" for line in lines), "tuple()", "(c, i)")
    vector = {"columns": columns, "rows": rows, "partition_by": "", "settings": {}}
    structure, block = structure_and_block(vector, order_by="(c, i)")
    ordered = sort_block(conform(block, structure.schema), structure.sorting_key)
    assert [str(number) for number in ordered["i"].to_pylist()] == engine.column("i"), columns


TEXTS = [
    (
        "a Array(UInt8), m Map(String, UInt8), t Tuple(a UInt8, b String), u Tuple(UInt8, Nullable(String))",
        '{"a":[1,null,"3"],"m":{"x":1},"t":{"b":"q"},"u":[1,null]}\n{"a":[],"m":{},"t":{"a":3,"b":"z"},"u":[2,"k"]}\n',
    ),
    (
        "d Decimal(9, 2), e Enum8('a' = 1, 'b' = 2), i Int256, f Float32, z DateTime64(3, 'Europe/Berlin')",
        '{"d":1.259,"e":"b","i":-5,"f":0.1,"z":"2024-07-01 12:00:00.5"}\n'
        '{"d":"2","e":1,"i":"7","f":"nan","z":1709210096.5}\n',
    ),
    ("n Nested(x UInt8, y LowCardinality(String))", '{"n.x":[1,2],"n.y":["a","b"]}\n{}\n'),
    (
        "a Array(String), m Map(String, Array(UInt8)), d Nullable(Decimal(9, 2)), f FixedString(3)",
        "a,m,d,f\n\"['x','y\\'z']\",\"{'k':[1]}\",1.5,ab\n[],{},\\N,\n",
    ),
    (
        "a Array(Array(Nullable(Float64))), t Tuple(UInt8, Array(String)), n Nullable(Tuple(UInt8, String)), p Point",
        "([[1.5,NULL],[]], (1,['a','b']), NULL, (1,2)), ([], (2,[]), (1,'x'), (-0.,nan))",
    ),
    (
        "i Int256, u UInt128, f BFloat16, d Date32, t DateTime64(6), v IPv6, m Time, e Array(Enum8('q' = 1))",
        "(1e10, 0x10, 3.14159, '1950-01-01', '2024-01-01 00:00:00.123456', '1.2.3.4', '12:00:00', ['q'])",
    ),
]


@pytest.mark.parametrize(("columns", "text"), TEXTS)
def test_texts_are_read_as_the_engine_reads_them(engine: Engine, tmp_path: Path, columns: str, text: str) -> None:
    (table,) = parse_statements(
        f"CREATE TABLE t ({columns}) ENGINE = ReplicatedMergeTree('/t', 'r') ORDER BY tuple()"
    )
    assert isinstance(table, CreateTable)
    structure = TableStructure.from_definition(table)
    if text.startswith("("):
        (values,) = parse_statements(f"INSERT INTO t VALUES {text}")
        assert isinstance(values, InsertValues)
        block, data = values.block(structure.schema), f"VALUES {text}"
    else:
        path = tmp_path / ("rows.jsonl" if text.startswith("{") else "rows.csv")
        path.write_text(text)
        (block,) = read_blocks(path, structure.schema, Reading(1000))
        data = f"FORMAT {'JSONEachRow' if path.suffix == '.jsonl' else 'CSVWithNames'}\n{text}"
    assert [each.block_id for each in ids_of_block(structure, block, 0)] == engine.ids_of(columns, data)
