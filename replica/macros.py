"""Macros in paths and names: `{shard}`, `{replica}` and their like."""

from __future__ import annotations

import re
from collections.abc import Mapping

from replica.errors import BadArguments

_MACRO = re.compile(r"\{(\w+)\}")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text with every macro filled in. Raises BadArguments for one that has no value."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise BadArguments(f"No macro {{{match[1]}}}: this server has {', '.join(sorted(values))}")
        return values[match[1]]

    return _MACRO.sub(value, text)
