"""Paths of znodes."""

from __future__ import annotations

import re

ROOT = "/"

# Java's view of the text: characters beyond the basic plane are surrogate pairs there, so they are refused too.
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def is_valid_path(path: str) -> bool:
    """ZooKeeper's rule for the path of a node that is written."""
    if path == ROOT:
        return True
    return (
        path.startswith("/")
        and all(name not in ("", ".", "..") for name in path[1:].split("/"))
        and _FORBIDDEN_CHARACTER.search(path) is None
    )


def is_valid_new_path(path: str, sequential: bool) -> bool:
    """The same for a create, whose path gets the digits of a counter appended if it is sequential."""
    return is_valid_path(path + "0" if sequential else path)


def parent_path(path: str) -> str:
    """`/a` for `/a/b`, `/` for `/a` and for `/` itself."""
    return path[: path.rindex("/")] or ROOT


def child_name(path: str) -> str:
    return path[path.rindex("/") + 1 :]
