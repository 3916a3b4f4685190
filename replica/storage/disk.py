"""The real disk: the `Disk` port on the operating system.

This is a named adapter: its blocking calls run on a small thread pool of its own, and the event loop never waits
for a file. An operation that has begun is carried through even when the one who awaited it is cancelled.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from replica.errors import BadArguments

T = TypeVar("T")

_THREADS = 4

# Where new content is written before it takes its name; invisible through the port.
_SCRATCH = ".writing"


def path_steps(path: str) -> tuple[str, ...]:
    """The names along a path of the `Disk` port; none of them for "", the root itself.

    Raises BadArguments unless the path is relative, `/`-separated, and free of `.`, `..`, empty names and NUL.
    """
    if path == "":
        return ()
    steps = tuple(path.split("/"))
    if "\0" in path or any(step in ("", ".", "..") for step in steps):
        raise BadArguments(f"{path!r} is not a path below a server's root: use relative names joined by '/'")
    try:
        path.encode()
    except UnicodeEncodeError as problem:
        raise BadArguments(f"{path!r} is not a path: it cannot be written in UTF-8") from problem
    return steps


class LocalDisk:
    """Files below `root`, which is created if missing. One process owns a root at a time.

    Follows no symbolic link below the root: a path that meets one is refused (BadArguments). `write` replaces a
    file in one step, so that a reader sees the old content or the new, a full disk leaves the old one, and
    another name given by `link` keeps what it had.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._scratch = self._root / _SCRATCH
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        self._scratch_names = itertools.count()
        self._renaming = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")

    def close(self) -> None:
        """Finish what has begun and let the threads go."""
        self._threads.shutdown()

    async def make_folder(self, path: str) -> None:
        await self._run(lambda: self._locate(path).mkdir(parents=True, exist_ok=True))

    async def write(self, path: str, data: bytes) -> None:
        await self._run(lambda: self._write(self._locate_entry(path), data))

    async def read(self, path: str) -> bytes:
        return await self._run(lambda: self._locate(path).read_bytes())

    async def list(self, path: str) -> list[str]:
        names = await self._run(lambda: os.listdir(self._locate(path)))
        return sorted(name for name in names if path or name != _SCRATCH)

    async def exists(self, path: str) -> bool:
        return await self._run(lambda: self._locate(path).exists())

    async def rename(self, source: str, target: str) -> None:
        await self._run(lambda: self._rename(self._locate_entry(source), self._locate_entry(target)))

    async def link(self, source: str, target: str) -> None:
        await self._run(lambda: os.link(self._locate_entry(source), self._locate_entry(target)))

    async def remove(self, path: str) -> None:
        await self._run(lambda: _remove(self._locate_entry(path)))

    async def fsync(self, path: str) -> None:
        await self._run(lambda: _fsync(self._locate_entry(path), os.O_RDONLY))

    async def fsync_folder(self, path: str) -> None:
        await self._run(lambda: _fsync(self._locate(path), os.O_RDONLY | os.O_DIRECTORY))

    async def _run(self, operation: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, operation)

    def _locate(self, path: str) -> Path:
        """The place of a path in the operating system; the path "" is the root."""
        place = self._root
        for step in path_steps(path):
            place = place / step
            if place == self._scratch or place.is_symlink():
                raise BadArguments(f"{path!r} is refused: {place} is not a plain file or folder of this server")
        return place

    def _locate_entry(self, path: str) -> Path:
        """As `_locate`, for operations that would make no sense on the root."""
        if path == "":
            raise BadArguments("this cannot be done to a server's root folder itself: name a file or folder in it")
        return self._locate(path)

    def _write(self, place: Path, data: bytes) -> None:
        fresh = self._scratch / str(next(self._scratch_names))
        try:
            fresh.write_bytes(data)
            fresh.rename(place)
        except OSError as problem:
            fresh.unlink(missing_ok=True)
            raise type(problem)(problem.errno, problem.strerror, str(place)) from problem

    def _rename(self, source: Path, target: Path) -> None:
        with self._renaming:
            folder = stat.S_ISDIR(source.lstat().st_mode)
            if folder and target.exists():  # POSIX would replace an empty folder
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            same_file = not folder and source != target and target.exists() and source.samefile(target)
            source.rename(target)
            if same_file:  # of two names of one file, POSIX would keep both
                source.unlink()


def _remove(place: Path) -> None:
    if stat.S_ISDIR(place.lstat().st_mode):
        shutil.rmtree(place)
    else:
        place.unlink()


def _fsync(place: Path, flags: int) -> None:
    descriptor = os.open(place, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
