"""ClickHouse expressions over blocks: a closed list of functions with ClickHouse's types and values.

They serve ORDER BY, PRIMARY KEY and PARTITION BY (`key`) and DEFAULT (`defaults`). Whatever is not on the list is
refused by name.
"""

from replica.expression.compile import Expression, compile_expression
from replica.expression.defaults import check_defaults, complete
from replica.expression.key import Key, check_primary_key, compile_key, compile_partition_key, sort_block

__all__ = [
    "Expression",
    "Key",
    "check_defaults",
    "check_primary_key",
    "compile_expression",
    "compile_key",
    "compile_partition_key",
    "complete",
    "sort_block",
]
