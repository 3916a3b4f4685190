"""The disk image: what programs see is what the real disk shows, what a loss of power leaves is what was synced."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clickhouse_sim.simulation.disk import SimulatedDisk
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.trace import Trace
from replica.environment import Disk
from replica.errors import BadArguments
from replica.storage.disk import LocalDisk

BLANK = Tape.replaying([])

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
contents = st.binary(max_size=8)
changes = st.one_of(
    st.tuples(st.just("make_folder"), paths),
    st.tuples(st.just("write"), paths, contents),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("link"), paths, paths),
    st.tuples(st.just("remove"), paths),
)
syncs = st.one_of(
    st.tuples(st.just("fsync"), paths),
    st.tuples(st.just("fsync_folder"), st.one_of(st.just(""), paths)),
)
seeds = st.integers(0, 2**32)

Change = tuple[Any, ...]
Tree = dict[str, bytes | None]


def apply(image: DiskImage, history: list[Change]) -> None:
    """The changes that are possible; the others fail and change nothing."""
    for name, *arguments in history:
        with suppress(OSError):
            getattr(image, name)(*arguments)


def tree(image: DiskImage, folder: str = "") -> Tree:
    """All paths: a file's content, None for a folder."""
    found: Tree = {}
    for name in image.names(folder):
        path = f"{folder}/{name}".lstrip("/")
        try:
            found[path] = image.read(path)
        except IsADirectoryError:
            found[path] = None
            found |= tree(image, path)
    return found


def sync_all(image: DiskImage) -> None:
    for path, content in tree(image).items():
        image.fsync_folder(path) if content is None else image.fsync(path)
    image.fsync_folder("")


# --- as the real disk ----------------------------------------------------------------------------------------


async def outcome(disk: Disk, change: Change) -> object:
    try:
        return await getattr(disk, change[0])(*change[1:])
    except (OSError, BadArguments) as error:
        return type(error).__name__, getattr(error, "errno", None)


async def seen(disk: Disk, folder: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name in await disk.list(folder):
        path = f"{folder}/{name}".lstrip("/")
        content = await outcome(disk, ("read", path))
        found.append((path, content))
        if content == ("IsADirectoryError", errno.EISDIR):
            found += await seen(disk, path)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(changes, syncs), max_size=25))
def test_it_looks_like_the_real_disk(history: list[Change]) -> None:
    async def compare(root: Path) -> None:
        real = LocalDisk(root)
        simulated = SimulatedDisk("r1", DiskImage(), Gate(), BLANK, Trace(lambda: 0.0))
        try:
            for change in history:
                if change[0] == "fsync" and (root / change[1]).is_dir():
                    continue  # the port promises it for files only
                assert await outcome(real, change) == await outcome(simulated, change), change
            assert await seen(real) == await seen(simulated)
        finally:
            real.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder)))


# --- losing power --------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(changes, syncs)), seeds)
def test_what_is_synced_survives_every_loss_of_power(history: list[Change], seed: int) -> None:
    image = DiskImage()
    apply(image, history)
    sync_all(image)
    before = tree(image)
    image.lose_power(Tape(seed))
    assert tree(image) == before


@given(st.lists(changes), st.lists(changes))
def test_what_is_not_synced_may_all_be_lost(synced: list[Change], unsynced: list[Change]) -> None:
    image = DiskImage()
    apply(image, synced)
    sync_all(image)
    before = tree(image)
    apply(image, unsynced)
    image.lose_power(BLANK)
    assert tree(image) == before


@given(st.lists(changes), st.lists(changes))
def test_what_is_not_synced_may_all_survive(synced: list[Change], unsynced: list[Change]) -> None:
    class Everything:
        def choose(self, label: str, options: Any) -> Any:
            return options[-1]

    image = DiskImage()
    apply(image, synced)
    sync_all(image)
    apply(image, unsynced)
    before = tree(image)
    image.lose_power(Everything())
    assert tree(image) == before


@given(st.lists(st.one_of(changes, syncs)), seeds)
def test_what_a_loss_of_power_left_stays(history: list[Change], seed: int) -> None:
    image = DiskImage()
    apply(image, history)
    image.lose_power(Tape(seed))
    left = tree(image)
    image.lose_power(Tape(seed + 1))
    assert tree(image) == left


@given(st.lists(st.one_of(changes, syncs)), seeds)
def test_no_content_comes_from_nowhere(history: list[Change], seed: int) -> None:
    image = DiskImage()
    apply(image, history)
    image.lose_power(Tape(seed))
    written = [arguments[1] for name, *arguments in history if name == "write"]
    for content in tree(image).values():
        assert not content or any(whole.startswith(content) for whole in written)


@given(seeds)
def test_unsynced_content_can_be_torn_or_empty_under_a_synced_name(seed: int) -> None:
    image = DiskImage()
    image.write("file", b"content")
    image.fsync_folder("")
    image.lose_power(Tape(seed))
    assert b"content".startswith(image.read("file"))


@given(st.integers(0, 4), seeds)
def test_replacing_by_synced_copy_and_rename_is_all_or_nothing(steps: int, seed: int) -> None:
    image = DiskImage()
    image.write("file", b"old")
    image.fsync("file")
    image.fsync_folder("")
    protocol: list[Change] = [("write", "new", b"new content"), ("fsync", "new"), ("rename", "new", "file")]
    protocol.append(("fsync_folder", ""))
    apply(image, protocol[:steps])
    image.lose_power(Tape(seed))
    if steps < 3:
        assert image.read("file") == b"old"
    elif steps == 3:
        assert image.read("file") in (b"old", b"new content")
    else:
        assert tree(image) == {"file": b"new content"}


@given(st.lists(st.sampled_from(["", "a", "b"])), seeds)
def test_a_move_between_folders_neither_loses_nor_doubles(synced: list[str], seed: int) -> None:
    image = DiskImage()
    apply(image, [("make_folder", "a"), ("make_folder", "b"), ("write", "a/file", b"x")])
    sync_all(image)
    image.rename("a/file", "b/file")
    for folder in synced:
        image.fsync_folder(folder)
    image.lose_power(Tape(seed))
    assert image.exists("a/file") != image.exists("b/file")
    assert image.exists("b/file") or not {"a", "b"} & set(synced)


@given(seeds)
def test_names_survive_in_the_order_in_which_they_were_made(seed: int) -> None:
    image = DiskImage()
    for name in "abcdef":
        image.write(name, b"")
    image.lose_power(Tape(seed))
    left = "".join(image.names(""))
    assert "abcdef".startswith(left)


def test_syncing_a_file_does_not_sync_its_name() -> None:
    image = DiskImage()
    image.write("file", b"x")
    image.fsync("file")
    image.lose_power(BLANK)
    assert tree(image) == {}


def test_syncing_a_folder_does_not_sync_its_own_name() -> None:
    image = DiskImage()
    image.make_folder("a/b")
    image.fsync_folder("a/b")
    image.fsync_folder("a")
    image.lose_power(BLANK)
    assert tree(image) == {}


# --- other misfortunes ---------------------------------------------------------------------------------------


@given(st.lists(changes), st.lists(changes))
def test_a_full_disk_takes_nothing_and_gives_back(before: list[Change], after: list[Change]) -> None:
    image = DiskImage()
    apply(image, before)
    held = tree(image)
    assume(held)
    image.full = True
    with pytest.raises(OSError, match="No space left on device") as refusal:
        image.write("new file", b"")
    assert refusal.value.errno == errno.ENOSPC
    assert tree(image) == held
    apply(image, after)
    assert set(tree(image).values()) <= set(held.values())
    image.full = False
    image.write("new file", b"")


def test_rot_flips_one_bit_for_good() -> None:
    image = DiskImage()
    image.write("file", b"abc")
    image.rot("file", 4)
    assert image.read("file") == b"acc"
    image.write("empty", b"")
    image.rot("empty", 0)
    assert image.read("empty") == b""
