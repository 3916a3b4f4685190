"""What `chsim znodes` and its subcommands do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from clickhouse_sim.cli.failures import INTERRUPTED
from clickhouse_sim.cli.listing import Branch, Listing
from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cli.values import clickhouse_text
from clickhouse_sim.cluster import znodes
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder
from coordinator.api import NoNode, Session, SessionLost, Stat, Watch, WatchOutcome

_STAT_COLUMNS = (
    "version",
    "cversion",
    "num_children",
    "ephemeral_owner",
    "ctime",
    "mtime",
    "czxid",
    "mzxid",
    "pzxid",
)


def subtree_listing(path: str, depth: int, stat: bool, folder: Path) -> Listing:
    """The subtree below a path; people see it as a tree."""
    top = _clean(path)
    found = znodes.with_session(_coordinator(folder), lambda session: znodes.subtree(session, top, depth))
    return Listing(
        ("path", "data", *(_STAT_COLUMNS if stat else ())),
        [(node.path, _text(node.data), *(_stat_values(node.stat) if stat else ())) for node in found],
        key=("path",),
        tree=[_branch(node, top, stat) for node in found],
    )


def show_value(path: str, folder: Path, renderer: Renderer) -> None:
    """The whole value of one znode."""
    data, _ = znodes.with_session(_coordinator(folder), lambda session: session.get(_clean(path)))
    renderer.record({"path": _clean(path), "data": _text(data)}, _text(data).removesuffix("\n"))


def show_stat(path: str, folder: Path, renderer: Renderer) -> None:
    """The bookkeeping of one znode."""
    _, stat = znodes.with_session(_coordinator(folder), lambda session: session.get(_clean(path)))
    values = {
        "path": _clean(path),
        **dict(zip(_STAT_COLUMNS, _stat_values(stat), strict=True)),
        "aversion": stat.aversion,
        "data_length": stat.data_length,
    }
    width = max(map(len, values))
    lines = (f"{name:<{width}}  {clickhouse_text(value)}" for name, value in values.items())
    renderer.record(values, "\n".join(lines))


def watch_znode(path: str, count: int | None, folder: Path, renderer: Renderer) -> None:
    """Print each change of a znode and of the list of its children, until Ctrl-C or `count` of them."""
    top = _clean(path)

    async def follow(session: Session) -> None:
        printed = 0
        with renderer.records() as tell:
            async for event in _events(session, top):
                now = datetime.now().replace(microsecond=0)
                tell({"time": now, "path": top, "event": event.name, "detail": event.detail}, event.sentence(now))
                printed += 1
                if printed == count:
                    return

    try:
        znodes.with_session(_coordinator(folder), follow)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


# --- changes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    detail: str

    def sentence(self, now: datetime) -> str:
        return f"{now:%H:%M:%S}  {self.name:<13}  {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class _Sight:
    """A znode as it was seen, or that it was not there; and the watches that were set in looking."""

    node: tuple[bytes, Stat] | None
    children: tuple[str, ...]
    watches: tuple[Watch, ...]


async def _events(session: Session, path: str) -> AsyncIterator[_Event]:
    """What changed between one look and the next. A watch says that something did, so no state is overlooked
    for long; of two changes in quick succession only the later may be seen."""
    seen = await _look(session, path)
    narrate(f"Watching {path}{'' if seen.node else ', which is not there yet'}. Ctrl-C ends it.")
    while True:
        await _first_to_fire(seen.watches)
        now = await _look(session, path)
        for event in _differences(seen, now):
            yield event
        seen = now


async def _look(session: Session, path: str) -> _Sight:
    while True:
        data, children = Watch(), Watch()
        try:
            node = await session.get(path, data)
            names = await session.children(path, children)
            return _Sight(node, tuple(names), (data, children))
        except NoNode:
            appears = Watch()
            if await session.exists(path, appears) is None:
                return _Sight(None, (), (appears,))


async def _first_to_fire(watches: tuple[Watch, ...]) -> None:
    waits = [asyncio.ensure_future(watch.wait()) for watch in watches]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    if WatchOutcome.LOST in [each.result() for each in done]:
        raise SessionLost("the session with the coordinator was lost, and the watch with it: run it again")


def _differences(before: _Sight, now: _Sight) -> list[_Event]:
    if before.node is None or now.node is None:
        events = [] if before.node is None else [_Event("deleted", "")]
        if now.node is not None:
            events.append(_Event("created", _first_line(now.node[0])))
        return events
    if before.node[1].czxid != now.node[1].czxid:
        return [_Event("deleted", ""), _Event("created", _first_line(now.node[0]))]
    events = []
    if before.node[1].mzxid != now.node[1].mzxid:
        events.append(_Event("changed", f"version {now.node[1].version}: {_first_line(now.node[0])}"))
    events += [_Event("child added", name) for name in now.children if name not in before.children]
    events += [_Event("child removed", name) for name in before.children if name not in now.children]
    return events


# --- how znodes are shown ------------------------------------------------------------------------------------


def _coordinator(folder: Path) -> str:
    return Cluster(ClusterFolder(folder)).coordinator_address()


def _clean(path: str) -> str:
    if not path.startswith("/"):
        raise click.UsageError(f"{path!r} is no path of a znode: it starts with a slash, as /{path} does.")
    return path.rstrip("/") or "/"


def _branch(node: znodes.Znode, top: str, stat: bool) -> Branch:
    depth = 0 if node.path == top else node.path.removeprefix(top).strip("/").count("/") + 1
    name = node.path if depth == 0 else node.path.rpartition("/")[2]
    return Branch(depth, name, f"{_summary(node.stat)}  {_text(node.data)}" if stat else _text(node.data))


def _summary(stat: Stat) -> str:
    mtime = datetime.fromtimestamp(stat.mtime / 1000, UTC)
    owner = f" ephemeral of {stat.ephemeral_owner:#x}" if stat.ephemeral_owner else ""
    return f"[v{stat.version} cv{stat.cversion} children {stat.num_children} {mtime:%Y-%m-%d %H:%M:%S}{owner}]"


def _stat_values(stat: Stat) -> tuple[Any, ...]:
    values = {column: getattr(stat, column) for column in _STAT_COLUMNS}
    for column in ("ctime", "mtime"):
        values[column] = datetime.fromtimestamp(values[column] / 1000, UTC).replace(tzinfo=None)
    return tuple(values.values())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _first_line(data: bytes) -> str:
    return _text(data).split("\n", 1)[0]
