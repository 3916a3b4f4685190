"""What a table's rows look like: types (`types`, one small class each), columns and their text in the coordination
service (`table`), the check that an incoming block fits (`conform`), and what people see of a block (`readable`).

The DEFAULT of a column that a block leaves out is computed in `replica.expression.defaults`, one storey up.
"""

from replica.schema.conform import conform
from replica.schema.readable import readable
from replica.schema.table import Column, TableSchema
from replica.schema.types import DataType, Kind, parse_type

__all__ = ["Column", "DataType", "Kind", "TableSchema", "conform", "parse_type", "readable"]
