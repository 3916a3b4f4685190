"""Which blocks a table that is not replicated has had lately, and the lines on its disk that say so.

ClickHouse: MergeTreeDeduplicationLog.cpp. A file `deduplication_log_<number>.txt` has one line a record: 1 for an id
that was added, 2 for one whose part was dropped, then the part and the id, with tabs between. All files together, in
order, give the ids that are known, the last `window` of them. When a file has twice as many records the next one
begins, and files whose records the later ones outnumber anyway go.

Pure: `replica.storage.local_log_files` brings the files in, and writes what is `unsaved`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from replica.part_name import PartName

_FILE_NAME = re.compile(r"deduplication_log_([0-9]{1,18})\.txt", re.ASCII)
_RECORD = re.compile(r"([12])\t([^\t\n]+)\t([^\t\n]+)\n")


class Change(StrEnum):
    """What a record says of an id; the value is how its line begins."""

    ADDED = "1"
    DROPPED = "2"


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a log."""

    change: Change
    part: PartName
    block_id: str

    def to_line(self) -> str:
        return f"{self.change}\t{self.part}\t{self.block_id}\n"


def records_of(text: str) -> Iterator[Record]:
    """The records of a file up to the first damage, such as a line that a crash has torn."""
    position = 0
    while match := _RECORD.match(text, position):
        change, part_name, block_id = match.groups()
        part = PartName.try_parse(part_name)
        if part is None:
            return
        yield Record(Change(change), part, block_id)
        position = match.end()


def file_name(number: int) -> str:
    return f"deduplication_log_{number}.txt"


def file_number(name: str) -> int | None:
    """The number of a log by its file's name; None for any other file."""
    match = _FILE_NAME.fullmatch(name)
    return None if match is None else int(match.group(1))


class KnownIds:
    """The ids that came last, each with the part of its block: at most so many, the oldest goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: dict[str, PartName] = {}

    def __iter__(self) -> Iterator[tuple[str, PartName]]:
        return iter(list(self._parts.items()))

    def part_of(self, block_id: str) -> PartName | None:
        return self._parts.get(block_id)

    def add(self, block_id: str, part: PartName) -> None:
        """An id that is known keeps its part and its place."""
        self._parts.setdefault(block_id, part)
        self._forget_oldest()

    def remove(self, block_id: str) -> None:
        self._parts.pop(block_id, None)

    def resize(self, most: int) -> None:
        self._most = most
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._parts) > self._most:
            del self._parts[next(iter(self._parts))]


class LocalLog:
    """The log of one table with `non_replicated_deduplication_window` = `window`.

    `files` are the texts of those that its disk has, by number. With a window of 0 nothing is known and nothing
    written; what the disk has stays.
    """

    def __init__(self, window: int, files: Mapping[int, str]) -> None:
        self._window = window
        self._known = KnownIds(window)
        self._counts = {number: self._replay(files[number]) for number in sorted(files)}
        self._current = max(files, default=0)
        self._lines = [record.to_line() for record in records_of(files.get(self._current, ""))]
        self._texts: dict[int, str] = {}
        self.outdated: tuple[int, ...] = ()
        if window:
            self._rotate_if_due()

    @property
    def window(self) -> int:
        return self._window

    def known(self, block_ids: Iterable[str]) -> dict[str, PartName]:
        """Those of the ids that are known, each with the part that its block became."""
        parts = ((block_id, self._known.part_of(block_id)) for block_id in block_ids)
        return {block_id: part for block_id, part in parts if part is not None}

    def add(self, part: PartName, block_ids: Iterable[str]) -> None:
        """A part has come, and these are its ids."""
        if self._window:
            for block_id in block_ids:
                self._known.add(block_id, part)
                self._write(Record(Change.ADDED, part, block_id))

    def drop(self, dropped: PartName) -> None:
        """A part or a range has gone: the blocks that went with it may come again."""
        for block_id, part in self._known:
            if dropped.contains(part):
                self._known.remove(block_id)
                self._write(Record(Change.DROPPED, part, block_id))

    def resize(self, window: int) -> None:
        """Know so many ids from now on."""
        self._window = window
        self._known.resize(window)
        self._rotate_if_due()

    # --- files -----------------------------------------------------------------------------------------------

    def unsaved(self) -> dict[int, str]:
        """The files that are to be written, whole, in order of their numbers."""
        return dict(self._texts)

    def saved(self) -> None:
        """What was `unsaved` is on the disk, and what was `outdated` is not."""
        self._texts.clear()
        self.outdated = ()

    def _replay(self, text: str) -> int:
        """Carry out the records of a file; how many those are. With no window nobody looks."""
        count = 0
        for record in records_of(text) if self._window else ():
            count += 1
            if record.change is Change.ADDED:
                self._known.add(record.block_id, record.part)
            else:
                self._known.remove(record.block_id)
        return count

    def _write(self, record: Record) -> None:
        self._lines.append(record.to_line())
        self._counts[self._current] += 1
        self._texts[self._current] = "".join(self._lines)
        self._rotate_if_due()

    def _rotate_if_due(self) -> None:
        if self._counts and self._counts[self._current] < 2 * self._window:
            return
        if self._window:
            self._current += 1
            self._lines = []
            self._counts[self._current] = 0
            self._texts[self._current] = ""
        self._leave_outdated()

    def _leave_outdated(self) -> None:
        """Of the files, from the newest back, those go whose ids the later records have pushed out of the window."""
        later = 0
        for number in sorted(self._counts, reverse=True):
            if later >= self._window and number != self._current:
                going = [each for each in sorted(self._counts) if each <= number]
                self.outdated += tuple(going)
                for each in going:
                    del self._counts[each]
                    self._texts.pop(each, None)
                return
            later += self._counts[number]
