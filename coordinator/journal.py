"""The write-ahead log: what the service must not forget, on disk before anybody hears of it.

A folder holds `snapshot-<zxid>` (the whole state at that zxid) and `log-<zxid>` files (the transactions after
that zxid). One writer thread appends all records that have gathered, syncs once, and reports; meanwhile the next
group gathers. When enough transactions stand in the log, the same thread writes a snapshot, a portion between
two groups, and then removes the files before it.

A crash can leave the last log with a tail that is not whole: recovery cuts it off, as nobody was told of it. Any
other damage is refused with `JournalDamaged`, never guessed around.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coordinator.log_records import (
    Unreadable,
    decode_state,
    decode_transaction,
    encode_state,
    encode_transaction,
    record,
    whole_records,
)
from coordinator.processor import State, Transaction

_log = logging.getLogger(__name__)

_LOG_HEAD = b"coordinator log 1\n"
_SNAPSHOT_HEAD = b"coordinator snapshot 1\n"
_PARTIAL = ".partial"


class JournalDamaged(Exception):
    """A file of the journal is not what was written; the message names it."""


class JournalInUse(Exception):
    """Another process works in the folder."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal's folder holds: a state (None: start from nothing) and what happened after it."""

    state: State | None
    transactions: list[Transaction]


# --- reading ---------------------------------------------------------------------------------------------------


def recover(folder: Path) -> Recovered:
    """Read a journal back and cut off a torn tail. Raises JournalDamaged."""
    snapshot_zxid, state = _newest_snapshot(folder)
    logs = [(zxid, path) for zxid, path in _files(folder, "log") if zxid >= snapshot_zxid]
    transactions: list[Transaction] = []
    last_zxid = snapshot_zxid
    for position, (_, path) in enumerate(logs):
        for transaction in _read_log(path, is_last=position == len(logs) - 1):
            if transaction.zxid <= last_zxid:
                raise JournalDamaged(f"{path}: transaction {transaction.zxid} stands after {last_zxid}")
            last_zxid = transaction.zxid
            transactions.append(transaction)
    return Recovered(state, transactions)


def _newest_snapshot(folder: Path) -> tuple[int, State | None]:
    snapshots = _files(folder, "snapshot")
    if not snapshots:
        return 0, None
    zxid, path = snapshots[-1]
    data = path.read_bytes()
    payloads, end = whole_records(data, len(_SNAPSHOT_HEAD))
    if not data.startswith(_SNAPSHOT_HEAD) or end != len(data):
        raise JournalDamaged(f"{path}: the snapshot is damaged at byte {end}")
    try:
        return zxid, decode_state(payloads)
    except Unreadable as error:
        raise JournalDamaged(f"{path}: {error}") from error


def _read_log(path: Path, *, is_last: bool) -> list[Transaction]:
    data = path.read_bytes()
    if is_last and len(data) < len(_LOG_HEAD):
        data = _LOG_HEAD
        _write_whole(path, data)
    if not data.startswith(_LOG_HEAD):
        raise JournalDamaged(f"{path}: this is no log of a coordinator")
    payloads, end = whole_records(data, len(_LOG_HEAD))
    if end != len(data):
        if not is_last:
            raise JournalDamaged(f"{path}: the log is damaged at byte {end}")
        _log.warning("%s: cut off a tail of %d bytes that was never acknowledged", path, len(data) - end)
        _truncate(path, end)
    try:
        return [decode_transaction(payload) for payload in payloads]
    except Unreadable as error:
        raise JournalDamaged(f"{path}: {error}") from error


def _files(folder: Path, kind: str) -> list[tuple[int, Path]]:
    """The journal's files of a kind with their zxids, ascending."""
    found = []
    for path in folder.iterdir():
        name, _, number = path.name.partition("-")
        if name == kind and len(number) == 16:
            with suppress(ValueError):
                found.append((int(number, 16), path))
    return sorted(found)


# --- writing ---------------------------------------------------------------------------------------------------


class Journal:
    """The writing end. Records are numbered from 1; `durable` counts those that a crash cannot take away."""

    def __init__(self, folder: Path, on_durable: Callable[[], None], on_failure: Callable[[OSError], None]) -> None:
        """Takes the folder for itself. The callbacks run on the event loop. Raises JournalInUse."""
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)
        self.appended = 0
        self.durable = 0
        self._folder = folder
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._lock = _exclusive_lock(folder)
        self._gathered: list[bytes | State] = []
        self._closing = False
        self._ended = asyncio.Event()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def recover(self) -> Recovered:
        """What the folder holds. Raises JournalDamaged."""
        return recover(self._folder)

    def start(self, zxid: int) -> None:
        """Start the writer thread; `zxid` is the last one so far."""
        logs = _files(self._folder, "log")
        path = logs[-1][1] if logs else _new_log(self._folder, zxid)
        writer = _Writer(self, self._folder, path, asyncio.get_running_loop())
        self._thread = threading.Thread(target=writer.run, name="coordinator journal", daemon=True)
        self._thread.start()

    def append(self, transaction: Transaction) -> None:
        """Have a transaction written; it is durable when `durable` reaches this moment's `appended`."""
        self.appended += 1
        self._hand_over(record(encode_transaction(transaction)))

    def snapshot(self, state: State) -> None:
        """Have the state written, as it is after all transactions so far, and what came before it removed."""
        self._hand_over(state)

    async def close(self) -> None:
        """Write what has gathered, stop the thread and leave the folder to others."""
        with self._change:
            self._closing = True
            self._change.notify()
        if self._thread is not None:
            await self._ended.wait()
            self._thread.join()
        os.close(self._lock)

    def _hand_over(self, item: bytes | State) -> None:
        with self._change:
            self._gathered.append(item)
            self._change.notify()

    # --- called by the writer thread ----------------------------------------------------------------------------

    def take(self, *, wait: bool) -> list[bytes | State] | None:
        """All that has gathered; None when the journal is closing and nothing is left."""
        with self._change:
            while wait and not self._gathered and not self._closing:
                self._change.wait()
            if self._closing and not self._gathered:
                return None
            taken, self._gathered = self._gathered, []
            return taken

    def report_durable(self, count: int) -> None:
        """On the loop: so many more records are durable."""
        self.durable += count
        self._on_durable()

    def report_failure(self, error: OSError) -> None:
        """On the loop: nothing can be made durable any more."""
        self._on_failure(error)

    def report_end(self) -> None:
        """On the loop: the thread does nothing any more."""
        self._ended.set()


class _Writer:
    """The body of the writer thread."""

    def __init__(self, journal: Journal, folder: Path, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._folder = folder
        self._loop = loop
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._snapshot: Iterator[None] | None = None

    def run(self) -> None:
        try:
            while (items := self._journal.take(wait=self._snapshot is None)) is not None:
                self._write(items)
                self._go_on_with_snapshot()
        except OSError as error:
            self._loop.call_soon_threadsafe(self._journal.report_failure, error)
        finally:
            os.close(self._file)
            self._loop.call_soon_threadsafe(self._journal.report_end)

    def _write(self, items: list[bytes | State]) -> None:
        group: list[bytes] = []
        for item in items:
            if isinstance(item, bytes):
                group.append(item)
            else:
                self._write_group(group)
                group = []
                self._begin_snapshot(item)
        self._write_group(group)

    def _write_group(self, group: list[bytes]) -> None:
        if group:
            _write_all(self._file, b"".join(group))
            sync(self._file)
            self._loop.call_soon_threadsafe(self._journal.report_durable, len(group))

    def _begin_snapshot(self, state: State) -> None:
        """From here on a new log; a snapshot that is not finished yet gives way to this newer one."""
        new_log = _new_log(self._folder, state.zxid)
        os.close(self._file)
        self._file = os.open(new_log, os.O_WRONLY | os.O_APPEND)
        self._snapshot = _written_in_portions(self._folder, state)

    def _go_on_with_snapshot(self) -> None:
        if self._snapshot is not None and next(self._snapshot, self) is self:
            self._snapshot = None


def _written_in_portions(folder: Path, state: State) -> Iterator[None]:
    """Write a snapshot, pausing after every portion; when it is durable, remove what came before it."""
    path = folder / f"snapshot-{state.zxid:016x}"
    partial = path.with_name(path.name + _PARTIAL)
    with partial.open("wb") as file:
        file.write(_SNAPSHOT_HEAD)
        for payload in encode_state(state):
            file.write(record(payload))
            yield
        file.flush()
        sync(file.fileno())
    partial.rename(path)
    _sync_folder(folder)
    for kind in ("snapshot", "log"):
        for zxid, old in _files(folder, kind):
            if zxid < state.zxid:
                old.unlink()
    for leftover in folder.glob("snapshot-*" + _PARTIAL):
        leftover.unlink()


def sync(file: int) -> None:
    """Return when all that was written to the file is on disk."""
    os.fdatasync(file)


def _new_log(folder: Path, zxid: int) -> Path:
    path = folder / f"log-{zxid:016x}"
    _write_whole(path, _LOG_HEAD)
    _sync_folder(folder)
    return path


def _write_whole(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _truncate(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)
        sync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exclusive_lock(folder: Path) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise JournalInUse(
            f"another coordinator works in {folder}; stop it or give this one its own folder"
        ) from None
    return descriptor
