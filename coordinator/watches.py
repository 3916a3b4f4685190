"""One-shot watches: who wants to hear of the next change to which path.

Two tables: *data* watches (set by reads of a node's data or existence) and *child* watches (set by listings). A
watcher is a number, one per connection, and holds at most one watch per path and table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from coordinator.paths import parent_path
from coordinator.requests import Event, EventKind
from coordinator.tree import Change, DataSet, NodeCreated, NodeDeleted

K = TypeVar("K")
V = TypeVar("V")
Notification = tuple[int, Event]  # who, what


class WatchTable:
    """The watches of one kind."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[int, None]] = {}
        self._paths: dict[int, dict[str, None]] = {}

    def add(self, watcher: int, path: str) -> None:
        self._watchers.setdefault(path, {})[watcher] = None
        self._paths.setdefault(watcher, {})[path] = None

    def holds(self, watcher: int, path: str) -> bool:
        return watcher in self._watchers.get(path, ())

    def take(self, path: str) -> list[int]:
        """The watchers of a path, whose watches are spent by this."""
        watchers = list(self._watchers.get(path, ()))
        for watcher in watchers:
            self.remove(watcher, path)
        return watchers

    def remove(self, watcher: int, path: str) -> None:
        _discard(self._watchers, path, watcher)
        _discard(self._paths, watcher, path)

    def forget(self, watcher: int) -> None:
        """The watcher is gone, and all its watches with it."""
        for path in list(self._paths.get(watcher, ())):
            self.remove(watcher, path)

    def paths_by_watcher(self) -> dict[int, list[str]]:
        return {watcher: list(paths) for watcher, paths in sorted(self._paths.items())}


class Watches:
    """Both tables, and which events a change fires."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.child = WatchTable()

    def fire(self, changes: Iterable[Change]) -> list[Notification]:
        """The events of these changes in the order in which they must go out; the watches are spent."""
        notifications: list[Notification] = []
        for change in changes:
            match change:
                case NodeCreated(path):
                    notifications += _notify(EventKind.CREATED, path, self.data.take(path))
                    notifications += self._fire_parent(path)
                case NodeDeleted(path):
                    watchers = dict.fromkeys(self.data.take(path) + self.child.take(path))
                    notifications += _notify(EventKind.DELETED, path, watchers)
                    notifications += self._fire_parent(path)
                case DataSet(path):
                    notifications += _notify(EventKind.DATA_CHANGED, path, self.data.take(path))
        return notifications

    def forget(self, watcher: int) -> None:
        self.data.forget(watcher)
        self.child.forget(watcher)

    def _fire_parent(self, path: str) -> list[Notification]:
        parent = parent_path(path)
        return _notify(EventKind.CHILDREN_CHANGED, parent, self.child.take(parent))


def _notify(kind: EventKind, path: str, watchers: Iterable[int]) -> list[Notification]:
    event = Event(kind, path)
    return [(watcher, event) for watcher in watchers]


def _discard(table: dict[K, dict[V, None]], key: K, member: V) -> None:
    members = table.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del table[key]
