"""The znode tree: what exists, and what a transaction does to it.

Pure: zxids and times come in as arguments. A write is first *decided* (all checks, in ZooKeeper's order) and
becomes a `Change`; changes are then *applied*. The journal stores changes, so recovery and service run the same
code. Nodes are immutable values: undoing a failed multi puts old ones back, and a snapshot is a copy of one dict.

Rules: `Stat` as ZooKeeper keeps it (visible cversion = creates + deletes; a sequence number is the parent's count
of creates, whatever was created); 32-bit counters wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator import access
from coordinator.access import OPEN_TO_ALL, Acl, Identity, Permission
from coordinator.api import ANY_VERSION, Stat
from coordinator.features import KEEPER_NODES, belongs_to_keeper
from coordinator.paths import ROOT, child_name, is_valid_path, parent_path
from coordinator.requests import (
    Check,
    CheckNotExists,
    Create,
    Created,
    CreateFlag,
    Delete,
    Done,
    ErrorCode,
    Refused,
    SetAcl,
    SetData,
    WriteOperation,
    WriteResult,
)

_UNDELETABLE = (ROOT, "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


@dataclass(frozen=True, slots=True)
class Node:
    """One znode. `creates` counts all children ever created; `owner` is the session of an ephemeral one, else 0."""

    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int = 0
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    aversion: int = 0
    creates: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request runs."""

    session_id: int
    identities: tuple[Identity, ...] = ()


# --- changes: what a transaction did ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeCreated:
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class AclSet:
    path: str
    acl: tuple[Acl, ...]


Change = NodeCreated | NodeDeleted | DataSet | AclSet


class OperationRefused(Exception):
    """The operation at `index` of a transaction was refused, and so nothing was done."""

    def __init__(self, index: int, refusal: Refused) -> None:
        super().__init__(f"operation {index}: {refusal}")
        self.index = index
        self.refusal = refusal


class Tree:
    """All znodes of one service."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}
        for path in (*_UNDELETABLE, *KEEPER_NODES):
            self._place(path, _builtin_node(path))

    # --- transactions ------------------------------------------------------------------------------------------

    def perform(
        self, operations: Sequence[WriteOperation], caller: Caller, zxid: int, time_ms: int
    ) -> tuple[list[WriteResult], list[Change]]:
        """Run the operations as one transaction, each seeing the effects of those before it.

        Returns a result per operation and the changes made. Raises OperationRefused with the tree as it was.
        """
        results: list[WriteResult] = []
        changes: list[Change] = []
        undo: list[tuple[str, Node | None]] = []
        for index, operation in enumerate(operations):
            try:
                change = self._decide(operation, caller)
            except Refused as refusal:
                for path, node in reversed(undo):
                    self._place(path, node)
                raise OperationRefused(index, refusal) from None
            if change is not None:
                undo.extend(self._before(change))
                self.apply(change, zxid, time_ms)
                changes.append(change)
            results.append(self._result(operation, change))
        return results, changes

    def apply(self, change: Change, zxid: int, time_ms: int) -> None:
        """Do what was decided, now or before a crash. The change must fit the tree."""
        match change:
            case NodeCreated(path, data, acl, owner):
                parent = self._nodes[parent_path(path)]
                self._place(path, Node(data, acl, owner, zxid, zxid, zxid, time_ms, time_ms))
                self._nodes[parent_path(path)] = replace(parent, creates=_int32(parent.creates + 1), pzxid=zxid)
            case NodeDeleted(path):
                self._place(path, None)
                self._nodes[parent_path(path)] = replace(self._nodes[parent_path(path)], pzxid=zxid)
            case DataSet(path, data):
                node = self._nodes[path]
                self._nodes[path] = replace(
                    node, data=data, mzxid=zxid, mtime=time_ms, version=_int32(node.version + 1)
                )
            case AclSet(path, acl):
                node = self._nodes[path]
                self._nodes[path] = replace(node, acl=acl, aversion=_int32(node.aversion + 1))

    def deletions_at_end(self, session_id: int) -> list[Change]:
        """What the end of a session does to the tree: its ephemerals go."""
        return [NodeDeleted(path) for path in self._ephemerals.get(session_id, ())]

    # --- reads -------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> Stat:
        """Raises Refused: NO_NODE (BAD_ARGUMENTS for a path with NUL). Needs no permission."""
        if "\0" in path:
            raise Refused(ErrorCode.BAD_ARGUMENTS, path)
        return self._stat(path or ROOT, self._existing(path))

    def data(self, path: str, caller: Caller) -> tuple[bytes | None, Stat]:
        """Raises Refused: NO_NODE, NO_AUTH."""
        node = self._readable(path, caller)
        return node.data, self._stat(path or ROOT, node)

    def children(self, path: str, caller: Caller) -> tuple[tuple[str, ...], Stat]:
        """Names in no promised order. Raises Refused: NO_NODE, NO_AUTH."""
        node = self._readable(path, caller)
        return tuple(self._children[path or ROOT]), self._stat(path or ROOT, node)

    def acl(self, path: str, caller: Caller) -> tuple[tuple[Acl, ...], Stat]:
        """The list, with digests masked for one who is no administrator. Raises Refused: NO_NODE, NO_AUTH."""
        node = self._existing(path)
        if access.permits(node.acl, Permission.ADMIN, caller.identities):
            return node.acl, self._stat(path or ROOT, node)
        self._permit(node, Permission.READ, caller, path)
        return access.masked(node.acl), self._stat(path or ROOT, node)

    def descendants_number(self, path: str, caller: Caller) -> int:
        """Raises Refused: NO_NODE, NO_AUTH."""
        self._readable(path, caller)
        prefix = "/" if path in ("", ROOT) else path + "/"
        return sum(other.startswith(prefix) and other != ROOT for other in self._nodes)

    def ephemerals(self, session_id: int) -> tuple[str, ...]:
        return tuple(self._ephemerals.get(session_id, ()))

    def ephemerals_by_session(self) -> dict[int, tuple[str, ...]]:
        return {session_id: tuple(paths) for session_id, paths in sorted(self._ephemerals.items())}

    def __len__(self) -> int:
        return len(self._nodes)

    def data_size(self) -> int:
        """Bytes of all paths and data."""
        return sum(len(path) + len(node.data or b"") for path, node in self._nodes.items())

    # --- snapshots ---------------------------------------------------------------------------------------------

    def nodes(self) -> dict[str, Node]:
        """All nodes as they are now; later changes to the tree do not show in it."""
        return dict(self._nodes)

    @classmethod
    def from_nodes(cls, nodes: Mapping[str, Node]) -> Tree:
        """The tree that `nodes()` described; what the service says of itself is always this build's."""
        tree = cls()
        for path in sorted(nodes):
            if path not in KEEPER_NODES:
                tree._place(path, nodes[path])
        return tree

    # --- deciding: the checks, in ZooKeeper's order -------------------------------------------------------------

    def _decide(self, operation: WriteOperation, caller: Caller) -> Change | None:
        if not isinstance(operation, Check | CheckNotExists) and belongs_to_keeper(operation.path):
            raise Refused(ErrorCode.BAD_ARGUMENTS, operation.path)
        match operation:
            case Create():
                return self._decide_create(operation, caller)
            case Delete(path, version):
                self._decide_delete(path, version, caller)
                return NodeDeleted(path)
            case SetData(path, data, version):
                _require_syntax(path)
                self._permit(self._existing(path), Permission.WRITE, caller, path)
                _require_version(version, self._nodes[path].version, path)
                return DataSet(path, data)
            case SetAcl(path, acl, version):
                _require_syntax(path)
                stored = _resolved(acl, caller, path)
                self._permit(self._existing(path), Permission.ADMIN, caller, path)
                _require_version(version, self._nodes[path].aversion, path)
                return AclSet(path, stored)
            case Check(path, version):
                _require_syntax(path)
                self._permit(self._existing(path), Permission.READ, caller, path)
                _require_version(version, self._nodes[path].version, path)
                return None
            case CheckNotExists(path, version):
                _require_syntax(path)
                node = self._nodes.get(path)
                if node is not None and version in (ANY_VERSION, node.version):
                    raise Refused(ErrorCode.NODE_EXISTS, path)
                return None

    def _decide_create(self, create: Create, caller: Caller) -> NodeCreated:
        path = create.path
        if not 0 <= create.flags <= CreateFlag.CONTAINER or "/" not in path or "\0" in path:
            raise Refused(ErrorCode.BAD_ARGUMENTS, path)
        acl = _resolved(create.acl, caller, path)
        parent = self._existing(parent_path(path), path)
        self._permit(parent, Permission.CREATE, caller, path)
        if create.flags & CreateFlag.SEQUENTIAL:
            path += f"{parent.creates:010d}"
        _require_syntax(path)
        if path in self._nodes:
            raise Refused(ErrorCode.NODE_EXISTS, path)
        if parent.owner:
            raise Refused(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
        return NodeCreated(path, create.data, acl, caller.session_id if create.flags & CreateFlag.EPHEMERAL else 0)

    def _decide_delete(self, path: str, version: int, caller: Caller) -> None:
        if "/" not in path or "\0" in path or path in _UNDELETABLE:
            raise Refused(ErrorCode.BAD_ARGUMENTS, path)
        self._permit(self._existing(parent_path(path), path), Permission.DELETE, caller, path)
        _require_version(version, self._existing(path).version, path)
        if self._children[path]:
            raise Refused(ErrorCode.NOT_EMPTY, path)

    def _existing(self, path: str, asked: str | None = None) -> Node:
        node = self._nodes.get(path or ROOT)
        if node is None:
            raise Refused(ErrorCode.NO_NODE, path if asked is None else asked)
        return node

    def _readable(self, path: str, caller: Caller) -> Node:
        node = self._existing(path)
        self._permit(node, Permission.READ, caller, path)
        return node

    def _permit(self, node: Node, permission: Permission, caller: Caller, path: str) -> None:
        if node.acl != OPEN_TO_ALL and not access.permits(node.acl, permission, caller.identities):
            raise Refused(ErrorCode.NO_AUTH, path)

    # --- the nodes and what is derived from them ----------------------------------------------------------------

    def _place(self, path: str, node: Node | None) -> None:
        """Put a node (None: nothing) at the path, and keep children and ephemerals in step."""
        old = self._nodes.get(path)
        if old is not None and old.owner and (node is None or node.owner != old.owner):
            del self._ephemerals[old.owner][path]
            if not self._ephemerals[old.owner]:
                del self._ephemerals[old.owner]
        if node is None:
            del self._nodes[path], self._children[path]
            del self._children[parent_path(path)][child_name(path)]
            return
        self._nodes[path] = node
        if node.owner:
            self._ephemerals.setdefault(node.owner, {})[path] = None
        self._children.setdefault(path, {})
        if path != ROOT:
            self._children.setdefault(parent_path(path), {})[child_name(path)] = None

    def _before(self, change: Change) -> Iterable[tuple[str, Node | None]]:
        """The nodes that a change will replace; undoing puts them back in reverse."""
        if isinstance(change, NodeCreated | NodeDeleted):
            parent = parent_path(change.path)
            return [(parent, self._nodes[parent]), (change.path, self._nodes.get(change.path))]
        return [(change.path, self._nodes[change.path])]

    def _result(self, operation: WriteOperation, change: Change | None) -> WriteResult:
        if isinstance(operation, Delete | Check | CheckNotExists):
            return Done(operation)
        assert change is not None, "every create and set is a change"
        stat = self._stat(change.path, self._nodes[change.path])
        return Created(change.path, stat, operation.with_stat) if isinstance(operation, Create) else stat

    def _stat(self, path: str, node: Node) -> Stat:
        num_children = len(self._children[path])
        return Stat(
            czxid=node.czxid,
            mzxid=node.mzxid,
            ctime=node.ctime,
            mtime=node.mtime,
            version=node.version,
            cversion=_int32(2 * node.creates - num_children),
            aversion=node.aversion,
            ephemeral_owner=node.owner,
            data_length=len(node.data or b""),
            num_children=num_children,
            pzxid=node.pzxid,
        )


def _require_syntax(path: str) -> None:
    if not is_valid_path(path):
        raise Refused(ErrorCode.BAD_ARGUMENTS, path)


def _require_version(wanted: int, actual: int, path: str) -> None:
    if wanted not in (ANY_VERSION, actual):
        raise Refused(ErrorCode.BAD_VERSION, path)


def _resolved(acl: Sequence[Acl], caller: Caller, path: str) -> tuple[Acl, ...]:
    if acl == OPEN_TO_ALL:
        return OPEN_TO_ALL
    try:
        return access.resolve(acl, caller.identities)
    except access.InvalidAcl:
        raise Refused(ErrorCode.INVALID_ACL, path) from None


def _builtin_node(path: str) -> Node:
    acl = access.READ_ONLY_TO_ALL if belongs_to_keeper(path) or path == "/zookeeper/config" else OPEN_TO_ALL
    return Node(KEEPER_NODES.get(path, b""), acl)


def _int32(number: int) -> int:
    return (number + 0x80000000) % 0x100000000 - 0x80000000
