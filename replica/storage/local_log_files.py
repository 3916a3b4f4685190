"""The files of a table's deduplication log, in `deduplication_logs/` of its folder.

The disk cannot append: the file that grows is written anew for every record. It has at most twice as many lines as
the window has ids.
"""

from __future__ import annotations

import contextlib

from replica.dedup.local_log import LocalLog, file_name, file_number
from replica.environment import Disk
from replica.storage.file_names import make_durable_folder

_FOLDER = "deduplication_logs"


class LocalLogFiles:
    """Those of the table in a folder of the disk."""

    def __init__(self, disk: Disk, table_folder: str) -> None:
        self._disk = disk
        self._folder = f"{table_folder}/{_FOLDER}"
        self._has_folder = False

    async def load(self, window: int) -> LocalLog:
        """The log that the files hold; a torn line at the end of a file counts as never written."""
        files: dict[int, str] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in await self._disk.list(self._folder):
                if (number := file_number(name)) is not None:
                    files[number] = (await self._disk.read(f"{self._folder}/{name}")).decode("utf-8", "replace")
        return LocalLog(window, files)

    async def save(self, log: LocalLog, *, fsync: bool) -> None:
        """Write what the log has not saved, durably if asked, then remove what is outdated.

        Raises OSError; the log goes on holding it unsaved, and the next call tries again.
        """
        texts, outdated = log.unsaved(), log.outdated
        if texts and not self._has_folder:
            await make_durable_folder(self._disk, self._folder)
            self._has_folder = True
        for number, text in sorted(texts.items()):
            await self._write(f"{self._folder}/{file_name(number)}", text.encode(), fsync=fsync)
        if fsync and texts:
            await self._disk.fsync_folder(self._folder)
        for number in outdated:
            with contextlib.suppress(FileNotFoundError):
                await self._disk.remove(f"{self._folder}/{file_name(number)}")
        log.saved()

    async def _write(self, path: str, data: bytes, *, fsync: bool) -> None:
        await self._disk.write(f"{path}.tmp", data)
        if fsync:
            await self._disk.fsync(f"{path}.tmp")
        await self._disk.rename(f"{path}.tmp", path)
