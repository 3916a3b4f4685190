"""Macros in paths and names: `{shard}`, `{replica}` and their like."""

from __future__ import annotations

import re
from collections.abc import Mapping

from replica.errors import BadArguments

_MACRO = re.compile(r"\{(\w+)\}")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text with every macro filled in. Raises BadArguments for one that has no value."""
    for name in _MACRO.findall(text):
        if name not in values:
            raise BadArguments(f"No macro {{{name}}}: this server has {', '.join(sorted(values))}")
    return expanded_where_known(text, values)


def expanded_where_known(text: str, values: Mapping[str, str]) -> str:
    """The text with the macros filled in that have a value, the others as they are."""
    return _MACRO.sub(lambda macro: values.get(macro[1], macro[0]), text)
