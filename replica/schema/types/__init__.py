"""ClickHouse's data types. `data_type` says what each of them tells about itself, `families` reads their names."""

from replica.schema.types.containers import converted
from replica.schema.types.conversions import plain
from replica.schema.types.data_type import DataType, Kind
from replica.schema.types.families import NULL_TYPE, SUPPORTED, integer_type, nested_columns, parse_type

__all__ = [
    "NULL_TYPE",
    "SUPPORTED",
    "DataType",
    "Kind",
    "converted",
    "integer_type",
    "nested_columns",
    "parse_type",
    "plain",
]
