"""What clients can ask of the service and what it answers, as frozen values.

`protocol.py` turns them into bytes and back, `processor.py` serves them; nothing here does anything. Error and
event numbers are ZooKeeper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from coordinator import api
from coordinator.access import OPEN_TO_ALL, Acl, Identity


class ErrorCode(IntEnum):
    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class Refused(Exception):
    """The service says no to one operation; nothing of it was done."""

    def __init__(self, code: ErrorCode, path: str) -> None:
        super().__init__(f"{code.name}: {path}")
        self.code = code
        self.path = path


_CLIENT_ERRORS: dict[int, type[api.RequestRefused]] = {
    ErrorCode.BAD_ARGUMENTS: api.BadArguments,
    ErrorCode.MARSHALLING: api.BadArguments,
    ErrorCode.NO_NODE: api.NoNode,
    ErrorCode.NO_AUTH: api.NoAuth,
    ErrorCode.BAD_VERSION: api.BadVersion,
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: api.NoChildrenForEphemerals,
    ErrorCode.NODE_EXISTS: api.NodeExists,
    ErrorCode.NOT_EMPTY: api.NotEmpty,
}


def client_error(code: int, path: str) -> api.RequestRefused:
    """The port's exception for an error number."""
    return _CLIENT_ERRORS.get(code, api.RequestRefused)(path)


# --- requests ------------------------------------------------------------------------------------------------


class CreateFlag(IntEnum):
    """The flag bits of a create that this service knows; 4 (container) makes a plain node, as ZooKeeper does."""

    EPHEMERAL = 1
    SEQUENTIAL = 2
    CONTAINER = 4


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes | None
    flags: int = 0
    acl: tuple[Acl, ...] = OPEN_TO_ALL
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CheckNotExists:
    """Fails if the node exists and `version` is -1 or its data version (Keeper's operation 501)."""

    path: str
    version: int


MultiOperation = Create | Delete | SetData | Check | CheckNotExists
WriteOperation = MultiOperation | SetAcl


@dataclass(frozen=True, slots=True)
class Multi:
    operations: tuple[MultiOperation, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    path: str
    watch: bool


@dataclass(frozen=True, slots=True)
class GetData:
    path: str
    watch: bool


@dataclass(frozen=True, slots=True)
class GetAcl:
    path: str


@dataclass(frozen=True, slots=True)
class GetChildren:
    path: str
    watch: bool
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class GetEphemerals:
    prefix: str


@dataclass(frozen=True, slots=True)
class GetAllChildrenNumber:
    path: str


@dataclass(frozen=True, slots=True)
class Sync:
    path: str


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class Auth:
    scheme: str
    credentials: bytes


@dataclass(frozen=True, slots=True)
class WhoAmI:
    pass


@dataclass(frozen=True, slots=True)
class SetWatches:
    """Re-arm watches after a re-attach; those overtaken since `relative_zxid` fire at once."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveWatches:
    """Forget watches (or only ask whether there are any): `kind` 1 children, 2 data, 3 any."""

    path: str
    kind: int
    only_check: bool = False


@dataclass(frozen=True, slots=True)
class CloseSession:
    pass


@dataclass(frozen=True, slots=True)
class Malformed:
    """A known operation whose body cannot be read; answered with an error, the connection lives on."""


@dataclass(frozen=True, slots=True)
class Unimplemented:
    """An operation this service does not offer. `known` ones are ZooKeeper's own and do not end the connection."""

    known: bool


Request = (
    WriteOperation
    | Multi
    | Exists
    | GetData
    | GetAcl
    | GetChildren
    | GetEphemerals
    | GetAllChildrenNumber
    | Sync
    | Ping
    | Auth
    | WhoAmI
    | SetWatches
    | RemoveWatches
    | CloseSession
    | Malformed
    | Unimplemented
)


# --- answers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    path: str
    stat: api.Stat
    with_stat: bool


@dataclass(frozen=True, slots=True)
class Data:
    data: bytes | None
    stat: api.Stat


@dataclass(frozen=True, slots=True)
class AclList:
    acl: tuple[Acl, ...]
    stat: api.Stat


@dataclass(frozen=True, slots=True)
class Children:
    names: tuple[str, ...]
    stat: api.Stat
    with_stat: bool


@dataclass(frozen=True, slots=True)
class Paths:
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Path:
    path: str


@dataclass(frozen=True, slots=True)
class Number:
    number: int


@dataclass(frozen=True, slots=True)
class Identities:
    identities: tuple[Identity, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a delete or a check inside a multi; `request` says of which."""

    request: Delete | Check | CheckNotExists


WriteResult = Created | api.Stat | Done


@dataclass(frozen=True, slots=True)
class MultiResults:
    results: tuple[WriteResult, ...]


@dataclass(frozen=True, slots=True)
class MultiRefused:
    """A multi of `count` operations, of which the one at `index` was refused with `code`; none was done."""

    count: int
    index: int
    code: ErrorCode


Body = WriteResult | Data | AclList | Children | Paths | Path | Number | Identities | MultiResults | MultiRefused


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is None when there is nothing to say beyond the error number."""

    zxid: int
    error: ErrorCode = ErrorCode.OK
    body: Body | None = None


class EventKind(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


@dataclass(frozen=True, slots=True)
class Event:
    """One-shot news of a change to a watched path."""

    kind: EventKind
    path: str
