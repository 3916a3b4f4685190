"""What a disk holds, in two layers: what programs see, and what a loss of power would leave.

Synchronous and pure; the chance that a loss of power needs comes in. The rules are those of a journalling file
system: changes of names take effect in order; `fsync` makes a file's content durable and `fsync_folder` the changes
of names in a folder, with the earlier ones that they build on; a rename is durable on both sides or on neither.
A loss of power keeps what is durable, and of the rest some first changes of names and some contents, whole or torn.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from replica.environment import Chance
from replica.errors import BadArguments
from replica.storage.disk import path_steps


@dataclass(eq=False, slots=True)
class _File:
    content: bytes
    durable: bytes = b""  # a file whose name outlives its content is there, and empty


@dataclass(eq=False, slots=True)
class _Folder:
    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)


_Node = _File | _Folder


@dataclass(frozen=True, slots=True)
class _NameChange:
    """`name` in `folder` now stands for `node`, or for nothing."""

    folder: _Folder
    name: str
    node: _Node | None


# A system does not keep changes back for ever: beyond so many the older half becomes durable by itself.
_JOURNAL_LIMIT = 1000

_Step = tuple[_NameChange, ...]  # changes that become durable together


class DiskImage:
    """Files and folders below a root, named by `/`-separated relative paths; "" is the root itself.

    The operations are those of the `Disk` port, with its errors.
    """

    def __init__(self) -> None:
        self.full = False
        self._root = _Folder()
        self._journal: list[_Step] = []

    # --- reading ---------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read(self, path: str) -> bytes:
        return self._file(path).content

    def names(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def entries_below(self, path: str) -> list[str]:
        """Paths of all that removing `path` takes away, in the order of removal: contents first, itself last."""
        node = self._node(path)
        if isinstance(node, _File):
            return [path]
        return [entry for name in sorted(node.names) for entry in self.entries_below(f"{path}/{name}")] + [path]

    # --- changing --------------------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        folder, steps = self._root, path_steps(path)
        for depth, name in enumerate(steps, 1):
            node = folder.names.get(name)
            if node is None:
                self._need_space(path)
                node = _Folder()
                self._change(_NameChange(folder, name, node))
            elif isinstance(node, _File):
                if depth < len(steps):
                    raise _error(NotADirectoryError, errno.ENOTDIR, path)
                raise _error(FileExistsError, errno.EEXIST, path)
            folder = node

    def write(self, path: str, data: bytes) -> None:
        """A new file takes the name; other names of the old one keep what they had."""
        folder, name = self._place(path)
        if isinstance(folder.names.get(name), _Folder):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        self._need_space(path)
        self._change(_NameChange(folder, name, _File(data)))

    def rename(self, source: str, target: str) -> None:
        source_steps, target_steps = _entry_steps(source), _entry_steps(target)
        node = self._node(source)
        source_folder, source_name = self._place(source)
        target_folder, target_name = self._place(target)
        replaced = target_folder.names.get(target_name)
        if isinstance(node, _Folder):
            if replaced is not None:
                raise _error(FileExistsError, errno.EEXIST, target)
            if target_steps[: len(source_steps)] == source_steps:
                raise _error(OSError, errno.EINVAL, target)
        elif isinstance(replaced, _Folder):
            raise _error(IsADirectoryError, errno.EISDIR, target)
        if source_steps != target_steps:
            self._change(_NameChange(source_folder, source_name, None), _NameChange(target_folder, target_name, node))

    def link(self, source: str, target: str) -> None:
        _entry_steps(target)
        file = self._node(source)
        folder, name = self._place(target)
        if name in folder.names:
            raise _error(FileExistsError, errno.EEXIST, target)
        if isinstance(file, _Folder):
            raise _error(PermissionError, errno.EPERM, source)
        self._change(_NameChange(folder, name, file))

    def remove(self, path: str) -> None:
        _entry_steps(path)
        self.remove_entries(self.entries_below(path))

    def remove_entries(self, entries: list[str]) -> None:
        """Remove these files and empty folders, one by one."""
        for entry in entries:
            folder, name = self._place(entry)
            self._change(_NameChange(folder, name, None))

    def fsync(self, path: str) -> None:
        file = self._file(path)
        file.durable = file.content

    def fsync_folder(self, path: str) -> None:
        _settle(self._taken_from_journal(self._folder(path)))

    # --- misfortune ------------------------------------------------------------------------------------------

    def lose_power(self, chance: Chance) -> None:
        """Fall back to what is durable, and as much of the rest as is drawn (option 0: nothing)."""
        _settle(self._journal[: chance.choose("disk names kept", range(len(self._journal) + 1))])
        self._journal.clear()
        _fall_back(self._root, chance)

    def rot(self, path: str, position: int) -> None:
        """Flip a bit of one byte of a file, behind everybody's back; `position` wraps around its length."""
        file = self._file(path)
        if file.content:
            rotten = bytearray(file.content)
            rotten[position % len(rotten)] ^= 1
            file.content = file.durable = bytes(rotten)

    # --- names -----------------------------------------------------------------------------------------------

    def _change(self, *step: _NameChange) -> None:
        for change in step:
            _apply(change, change.folder.names)
        self._journal.append(step)
        if len(self._journal) > _JOURNAL_LIMIT:
            half = _JOURNAL_LIMIT // 2
            _settle(self._journal[:half])
            del self._journal[:half]

    def _taken_from_journal(self, folder: _Folder) -> list[_Step]:
        """The steps that touch this folder, and the earlier ones that touch a folder they touch, in order."""
        touched, taken, left = {folder}, [], []
        for step in reversed(self._journal):
            if any(change.folder in touched for change in step):
                touched.update(change.folder for change in step)
                taken.append(step)
            else:
                left.append(step)
        self._journal = left[::-1]
        return taken[::-1]

    def _node(self, path: str) -> _Node:
        node: _Node = self._root
        for name in path_steps(path):
            if isinstance(node, _File):
                raise _error(NotADirectoryError, errno.ENOTDIR, path)
            if name not in node.names:
                raise _error(FileNotFoundError, errno.ENOENT, path)
            node = node.names[name]
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if isinstance(node, _Folder):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._node(path)
        if isinstance(node, _File):
            raise _error(NotADirectoryError, errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        """The folder that holds, or would hold, this path, and the name in it."""
        *above, name = _entry_steps(path)
        return self._folder("/".join(above)), name

    def _need_space(self, path: str) -> None:
        if self.full:
            raise _error(OSError, errno.ENOSPC, path)


def _settle(steps: list[_Step]) -> None:
    for step in steps:
        for change in step:
            _apply(change, change.folder.durable)


def _apply(change: _NameChange, names: dict[str, _Node]) -> None:
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


def _fall_back(folder: _Folder, chance: Chance) -> None:
    folder.names = dict(folder.durable)
    for name in sorted(folder.names):
        node = folder.names[name]
        if isinstance(node, _Folder):
            _fall_back(node, chance)
        elif node.content != node.durable:
            node.content = node.durable = _surviving_content(node, chance)


def _surviving_content(file: _File, chance: Chance) -> bytes:
    fate = chance.choose("disk content kept", ("durable", "torn", "written"))
    if fate == "torn":
        return file.content[: chance.choose("disk content torn at", range(len(file.content) + 1))]
    return file.content if fate == "written" else file.durable


def _entry_steps(path: str) -> tuple[str, ...]:
    """The names along a path, which must not be the root itself."""
    steps = path_steps(path)
    if not steps:
        raise BadArguments("this cannot be done to a server's root folder itself: name a file or folder in it")
    return steps


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
