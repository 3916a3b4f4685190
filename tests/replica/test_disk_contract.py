"""What every disk promises. A world with another disk adds a factory to `DISKS` and gets the same questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.simulation.disk import SimulatedDisk
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.trace import Trace
from replica.environment import Disk
from replica.errors import BadArguments
from replica.storage.disk import LocalDisk, path_steps

DISKS: dict[str, Callable[[Path], Disk]] = {
    "local": lambda folder: LocalDisk(folder / "root"),
    "simulated": lambda _folder: SimulatedDisk("r1", DiskImage(), Gate(), Tape(0), Trace(lambda: 0.0)),
}


@pytest.fixture(params=sorted(DISKS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return DISKS[request.param](tmp_path)


async def test_a_file_is_read_as_written_and_replaced_whole(disk: Disk) -> None:
    await disk.make_folder("a/b")
    await disk.write("a/b/file", b"a long first content")
    await disk.write("a/b/file", b"short")
    assert await disk.read("a/b/file") == b"short"
    assert await disk.list("a/b") == ["file"]


async def test_writing_needs_the_folder(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        await disk.write("nowhere/file", b"")
    with pytest.raises(FileNotFoundError):
        await disk.read("nowhere/file")
    with pytest.raises(FileNotFoundError):
        await disk.list("nowhere")


async def test_a_folder_cannot_be_written_or_read_as_a_file(disk: Disk) -> None:
    await disk.make_folder("folder")
    with pytest.raises(IsADirectoryError):
        await disk.write("folder", b"")
    with pytest.raises(IsADirectoryError):
        await disk.read("folder")
    assert await disk.list("") == ["folder"]


async def test_a_file_is_not_a_folder(disk: Disk) -> None:
    await disk.write("file", b"")
    with pytest.raises(NotADirectoryError):
        await disk.write("file/below", b"")
    with pytest.raises(NotADirectoryError):
        await disk.list("file")
    with pytest.raises(OSError, match="file"):
        await disk.make_folder("file")


async def test_folders_are_made_with_their_ancestors_and_again(disk: Disk) -> None:
    await disk.make_folder("a/b/c")
    await disk.make_folder("a/b/c")
    assert await disk.list("a/b") == ["c"]


async def test_names_are_listed_sorted(disk: Disk) -> None:
    for name in ("b", "a", "C", "é", "10", "9"):
        await disk.write(name, b"")
    assert await disk.list("") == sorted(["b", "a", "C", "é", "10", "9"])


async def test_existence_is_told_of_files_and_folders(disk: Disk) -> None:
    await disk.make_folder("a/b")
    await disk.write("a/file", b"")
    assert await disk.exists("")
    assert await disk.exists("a/b")
    assert await disk.exists("a/file")
    assert not await disk.exists("a/other")
    assert not await disk.exists("other/file")


async def test_a_file_replaces_a_file(disk: Disk) -> None:
    await disk.write("old", b"old")
    await disk.write("new", b"new")
    await disk.rename("new", "old")
    assert await disk.read("old") == b"new"
    assert await disk.list("") == ["old"]


async def test_a_file_moves_onto_its_own_second_name(disk: Disk) -> None:
    await disk.write("one", b"content")
    await disk.link("one", "two")
    await disk.rename("one", "two")
    assert await disk.list("") == ["two"]
    await disk.rename("two", "two")
    assert await disk.read("two") == b"content"


async def test_a_folder_moves_with_all_that_is_in_it(disk: Disk) -> None:
    await disk.make_folder("tmp/deep")
    await disk.write("tmp/deep/file", b"x")
    await disk.make_folder("place")
    await disk.rename("tmp", "place/final")
    assert await disk.read("place/final/deep/file") == b"x"
    assert not await disk.exists("tmp")


@pytest.mark.parametrize("kind", ["empty folder", "full folder", "file"])
async def test_a_folder_refuses_an_existing_target(disk: Disk, kind: str) -> None:
    await disk.make_folder("tmp")
    if kind == "file":
        await disk.write("final", b"")
    else:
        await disk.make_folder("final")
    if kind == "full folder":
        await disk.write("final/file", b"")
    with pytest.raises(FileExistsError):
        await disk.rename("tmp", "final")
    assert await disk.list("") == ["final", "tmp"]


async def test_of_two_folders_one_takes_the_name(disk: Disk) -> None:
    await disk.make_folder("one")
    await disk.make_folder("two")
    ends = await asyncio.gather(disk.rename("one", "final"), disk.rename("two", "final"), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["FileExistsError", "NoneType"]
    assert len(await disk.list("")) == 2


async def test_what_is_not_there_cannot_be_moved_linked_removed_or_synced(disk: Disk) -> None:
    for operation in (disk.rename("no", "new"), disk.link("no", "new"), disk.remove("no"), disk.fsync("no")):
        with pytest.raises(FileNotFoundError):
            await operation
    with pytest.raises(FileNotFoundError):
        await disk.fsync_folder("no")


async def test_a_linked_file_lives_on_under_its_second_name(disk: Disk) -> None:
    await disk.write("one", b"content")
    await disk.link("one", "two")
    await disk.write("one", b"other")
    assert await disk.read("two") == b"content"
    await disk.remove("one")
    assert await disk.read("two") == b"content"
    await disk.write("three", b"")
    with pytest.raises(FileExistsError):
        await disk.link("two", "three")


async def test_removing_takes_a_folder_with_all_that_is_in_it(disk: Disk) -> None:
    await disk.make_folder("a/b")
    await disk.write("a/b/file", b"")
    await disk.remove("a")
    assert await disk.list("") == []


async def test_syncing_changes_nothing_that_can_be_seen(disk: Disk) -> None:
    await disk.make_folder("a")
    await disk.write("a/file", b"x")
    await disk.fsync("a/file")
    await disk.fsync_folder("a")
    await disk.fsync_folder("")
    assert await disk.read("a/file") == b"x"


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../b", "a//b", "a/", ".", "./a", "a\0b", "/", "a/\ud800"])
async def test_paths_stay_below_the_root(disk: Disk, path: str) -> None:
    for operation in (
        disk.make_folder(path),
        disk.write(path, b""),
        disk.read(path),
        disk.list(path),
        disk.exists(path),
        disk.rename(path, "x"),
        disk.rename("x", path),
        disk.link("x", path),
        disk.remove(path),
        disk.fsync(path),
        disk.fsync_folder(path),
    ):
        with pytest.raises(BadArguments):
            await operation


async def test_the_root_itself_is_not_touched(disk: Disk) -> None:
    for operation in (disk.remove(""), disk.write("", b""), disk.rename("", "x"), disk.rename("x", "")):
        with pytest.raises(BadArguments):
            await operation


async def test_a_symbolic_link_leads_nowhere(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "root")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "folder").symlink_to(tmp_path)
    for operation in (
        disk.read("file"),
        disk.read("folder/secret"),
        disk.write("folder/new", b""),
        disk.remove("file"),
    ):
        with pytest.raises(BadArguments):
            await operation
    assert (tmp_path / "secret").read_bytes() == b"secret"


async def test_left_overs_of_a_killed_write_are_neither_seen_nor_kept(tmp_path: Path) -> None:
    left_over = tmp_path / "root" / ".writing" / "17"
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"half")
    disk = LocalDisk(tmp_path / "root")
    assert await disk.list("") == []
    assert not left_over.exists()
    with pytest.raises(BadArguments):
        await disk.read(".writing/17")


@given(st.text(alphabet=st.sampled_from(["a", ".", "/", "\0", "é", " "]), max_size=8))
def test_a_path_is_refused_or_is_its_own_names(path: str) -> None:
    try:
        steps = path_steps(path)
    except BadArguments:
        assert "\0" in path or {"", ".", ".."} & set(path.split("/"))
    else:
        assert "/".join(steps) == path
        assert not {"", ".", ".."} & set(steps)
