"""The tree against a model that is too simple to be wrong: copies instead of undo, counting instead of counters."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.access import OPEN_TO_ALL, READ_ONLY_TO_ALL, Acl, Identity, Permission
from coordinator.requests import (
    Check,
    CheckNotExists,
    Create,
    Created,
    Delete,
    ErrorCode,
    Refused,
    SetAcl,
    SetData,
    WriteOperation,
)
from coordinator.tree import Caller, Change, NodeCreated, OperationRefused, Tree

PATHS = ["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/a/b0000000001"]

paths = st.sampled_from(PATHS)
versions = st.sampled_from([-1, -1, -1, 0, 1, 2])
data = st.sampled_from([None, b"", b"x", b"longer"])
operations = st.one_of(
    st.builds(Create, paths, data, st.sampled_from([0, 0, 0, 1, 2, 3])),
    st.builds(Delete, paths, versions),
    st.builds(SetData, paths, data, versions),
    st.builds(Check, paths, versions),
    st.builds(CheckNotExists, paths, versions),
)
batches = st.one_of(*[st.lists(operations, min_size=1, max_size=4)] * 5, st.none())  # None: the session ends
steps = st.lists(st.tuples(st.integers(1, 3), batches), min_size=5, max_size=40)


@dataclass
class ModelNode:
    data: bytes | None
    owner: int = 0
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    version: int = 0
    born: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.nodes = {"/": ModelNode(b"")}

    def run(self, batch: list[WriteOperation], session: int, zxid: int) -> list[str | None] | tuple[int, ErrorCode]:
        before = copy.deepcopy(self.nodes)
        results: list[str | None] = []
        for index, operation in enumerate(batch):
            outcome = self.run_one(operation, session, zxid)
            if isinstance(outcome, ErrorCode):
                self.nodes = before
                return index, outcome
            results.append(outcome)
        return results

    def run_one(self, operation: WriteOperation, session: int, zxid: int) -> str | ErrorCode | None:
        path = operation.path
        parent = path.rpartition("/")[0] or "/"
        node = self.nodes.get(path)
        if isinstance(operation, Create):
            if parent not in self.nodes:
                return ErrorCode.NO_NODE
            if operation.flags & 2:
                path += str(len(self.nodes[parent].born)).zfill(10)
            if path in self.nodes:
                return ErrorCode.NODE_EXISTS
            if self.nodes[parent].owner:
                return ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
            self.nodes[path] = ModelNode(operation.data, session * (operation.flags & 1), zxid, zxid, zxid)
            self.nodes[parent].born.append(path)
            self.nodes[parent].pzxid = zxid
            return path
        if isinstance(operation, CheckNotExists):
            hit = node is not None and operation.version in (-1, node.version)
            return ErrorCode.NODE_EXISTS if hit else None
        if node is None:
            return ErrorCode.NO_NODE
        if operation.version not in (-1, node.version):
            return ErrorCode.BAD_VERSION
        if isinstance(operation, Delete):
            if self.children(path):
                return ErrorCode.NOT_EMPTY
            self.remove(path, zxid)
        if isinstance(operation, SetData):
            node.data, node.version, node.mzxid = operation.data, node.version + 1, zxid
        return None

    def remove(self, path: str, zxid: int) -> None:
        parent = self.nodes[path.rpartition("/")[0] or "/"]
        parent.died.append(path)
        parent.pzxid = zxid
        del self.nodes[path]

    def children(self, path: str) -> list[str]:
        return [other for other in self.nodes if other != "/" and (other.rpartition("/")[0] or "/") == path]

    def end_session(self, session: int, zxid: int) -> None:
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self.remove(path, zxid)


def assert_equal(tree: Tree, model: Model) -> None:
    nobody = Caller(0)
    for path in PATHS:
        assert (path in model.nodes) == (path in tree.nodes())
    for path, expected in model.nodes.items():
        if path == "/":
            continue  # the root has children of the service's own
        data, stat = tree.data(path, nobody)
        names, _ = tree.children(path, nobody)
        assert data == expected.data
        assert sorted(f"{path}/{name}" for name in names) == sorted(model.children(path))
        assert stat.num_children == len(names)
        assert stat.data_length == len(expected.data or b"")
        assert stat.cversion == len(expected.born) + len(expected.died)
        assert (stat.czxid, stat.mzxid, stat.pzxid) == (expected.czxid, expected.mzxid, expected.pzxid)
        assert (stat.version, stat.ephemeral_owner, stat.aversion) == (expected.version, expected.owner, 0)
    for session in (1, 2, 3):
        owned = sorted(path for path, node in model.nodes.items() if node.owner == session)
        assert sorted(tree.ephemerals(session)) == owned


def perform(tree: Tree, batch: list[WriteOperation], session: int, zxid: int) -> tuple[object, list[Change]]:
    """The outcome as the model tells it, and the changes."""
    try:
        results, changes = tree.perform(batch, Caller(session), zxid, zxid)
    except OperationRefused as refused:
        return (refused.index, refused.refusal.code), []
    return [result.path if isinstance(result, Created) else None for result in results], changes


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_tree_does_what_the_model_does(program: list[tuple[int, list[WriteOperation] | None]]) -> None:
    tree, model = Tree(), Model()
    replayed = Tree()
    for zxid, (session, batch) in enumerate(program, start=1):
        if batch is None:
            changes = tree.deletions_at_end(session)
            for change in changes:
                tree.apply(change, zxid, zxid)
            model.end_session(session, zxid)
        else:
            expected = model.run(batch, session, zxid)
            outcome, changes = perform(tree, batch, session, zxid)
            assert outcome == expected
        assert_equal(tree, model)
        for change in changes:
            replayed.apply(change, zxid, zxid)
    assert replayed.nodes() == tree.nodes()  # changes are all that a log needs
    again = Tree.from_nodes(tree.nodes())
    assert again.nodes() == tree.nodes()
    assert_equal(again, model)


def refusal(tree: Tree, operation: WriteOperation, caller: Caller | None = None) -> ErrorCode:
    with pytest.raises(OperationRefused) as refused:
        tree.perform([operation], caller or Caller(1), 1, 1)
    return refused.value.refusal.code


def test_a_failed_multi_leaves_nothing_behind_not_even_in_the_indexes() -> None:
    tree = Tree()
    tree.perform([Create("/p", b""), Create("/p/old", b"", 1)], Caller(1), 1, 1)
    before, ephemerals = tree.nodes(), tree.ephemerals(1)
    undone = [
        Create("/p/new", b"", 1),
        Delete("/p/old", -1),
        Create("/p/old", b"again"),
        Create("/p/old/child", b""),
        SetData("/p", b"x", -1),
        Delete("/p/old/child", -1),
        Delete("/absent", -1),
    ]
    assert refusal(tree, Delete("/absent", -1)) is ErrorCode.NO_NODE
    with pytest.raises(OperationRefused) as refused:
        tree.perform(undone, Caller(1), 2, 2)
    assert refused.value.index == 6
    assert tree.nodes() == before
    assert tree.ephemerals(1) == ephemerals
    assert tree.children("/p", Caller(1))[0] == ("old",)
    assert refusal(tree, Delete("/p", -1)) is ErrorCode.NOT_EMPTY


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Create("/new", b"", 5), ErrorCode.BAD_ARGUMENTS),
        (Create("/new", b"", -1), ErrorCode.BAD_ARGUMENTS),
        (Create("new", b""), ErrorCode.BAD_ARGUMENTS),
        (Create("/absent/new", b"", 0, ()), ErrorCode.INVALID_ACL),
        (Create("/new", b"", 0, (Acl(31, Identity("world", "me")),)), ErrorCode.INVALID_ACL),
        (Create("/a//b", b""), ErrorCode.NO_NODE),
        (Create("/a/", b""), ErrorCode.BAD_ARGUMENTS),
        (Create("/.", b""), ErrorCode.BAD_ARGUMENTS),
        (Create("/\U0001f600", b""), ErrorCode.BAD_ARGUMENTS),
        (Create("/", b""), ErrorCode.NODE_EXISTS),
        (Create("/keeper/x", b""), ErrorCode.BAD_ARGUMENTS),
        (SetData("/keeper/feature_flags", b"", -1), ErrorCode.BAD_ARGUMENTS),
        (SetData("/keeper", b"", -1), ErrorCode.BAD_ARGUMENTS),
        (Delete("/keeper/api_version", -1), ErrorCode.BAD_ARGUMENTS),
        (SetAcl("/keeper", OPEN_TO_ALL, -1), ErrorCode.BAD_ARGUMENTS),
        (Delete("/", -1), ErrorCode.BAD_ARGUMENTS),
        (Delete("/zookeeper/quota", -1), ErrorCode.BAD_ARGUMENTS),
        (SetData("/zookeeper/config", b"", -1), ErrorCode.NO_AUTH),
        (SetData("/a//", b"", -1), ErrorCode.BAD_ARGUMENTS),
        (SetAcl("/absent", (), -1), ErrorCode.INVALID_ACL),
        (SetAcl("/a", OPEN_TO_ALL, 3), ErrorCode.BAD_VERSION),
        (Check("a", -1), ErrorCode.BAD_ARGUMENTS),
    ],
)
def test_the_first_check_that_fails_gives_the_code(operation: WriteOperation, code: ErrorCode) -> None:
    tree = Tree()
    tree.perform([Create("/a", b"")], Caller(1), 1, 1)
    assert refusal(tree, operation) is code


def test_permissions() -> None:
    tree = Tree()
    me = Identity("digest", "me:hash")
    mine = Caller(1, (me,))
    only_me = (Acl(Permission.ALL, me), Acl(Permission.READ, Identity("ip", "10.0.0.0/8")))
    tree.perform([Create("/mine", b"secret", 0, only_me)], mine, 1, 1)
    stranger = Caller(2, (Identity("ip", "192.168.0.1"),))
    neighbour = Caller(3, (Identity("ip", "10.1.2.3"),))
    assert tree.data("/mine", mine)[0] == tree.data("/mine", neighbour)[0] == b"secret"
    assert tree.stat("/mine").data_length == 6  # existence is no secret
    for read in (tree.data, tree.children, tree.acl):
        with pytest.raises(Refused) as refused:
            read("/mine", stranger)
        assert refused.value.code is ErrorCode.NO_AUTH
    for forbidden in (SetData("/mine", b"", -1), Create("/mine/x", b""), SetAcl("/mine", OPEN_TO_ALL, -1)):
        assert refusal(tree, forbidden, neighbour) is ErrorCode.NO_AUTH
    assert tree.acl("/mine", mine)[0] == only_me
    assert tree.acl("/mine", neighbour)[0][0].identity.id == "me:x"
    tree.perform([Create("/mine/x", b"", 0, READ_ONLY_TO_ALL)], mine, 2, 2)
    assert refusal(tree, Delete("/mine/x", -1), neighbour) is ErrorCode.NO_AUTH  # asked of the parent
    tree.perform([Delete("/mine/x", -1)], mine, 3, 3)
    auth = (Acl(Permission.ALL, Identity("auth", "")),)
    assert refusal(tree, Create("/a", b"", 0, auth), stranger) is ErrorCode.INVALID_ACL
    tree.perform([Create("/a", b"", 0, auth), SetAcl("/a", OPEN_TO_ALL, 0)], mine, 4, 4)
    assert tree.stat("/a").aversion == 1


def test_what_a_tree_starts_with() -> None:
    tree = Tree()
    assert sorted(tree.children("/", Caller(1))[0]) == ["keeper", "zookeeper"]
    assert tree.children("", Caller(1)) == tree.children("/", Caller(1))
    assert sorted(tree.children("/zookeeper", Caller(1))[0]) == ["config", "quota"]
    anybody = Caller(1, (Identity("world", "anyone"),))
    assert tree.data("/keeper/feature_flags", anybody)[0] == b"\x20"
    assert tree.data("/keeper/api_version", anybody)[0] == b"0"
    assert tree.descendants_number("/", anybody) == 6


def test_counters_wrap_as_32_bit_integers() -> None:
    tree = Tree()
    tree.perform([Create("/p", b""), Create("/p/x", b"")], Caller(1), 1, 1)
    nodes = tree.nodes()

    nodes["/p"] = replace(nodes["/p"], creates=2**31 - 1, version=2**31 - 1)
    tree = Tree.from_nodes(nodes)
    results, _ = tree.perform(
        [Create("/p/n-", b"", 2), Create("/p/n-", b"", 2), SetData("/p", b"", -1)], Caller(1), 2, 2
    )
    assert [result.path for result in results if isinstance(result, Created)] == [
        "/p/n-2147483647",
        "/p/n--2147483648",
    ]
    assert tree.stat("/p").version == -(2**31)


def test_changes_name_the_final_path() -> None:
    _, changes = Tree().perform([Create("/n-", b"d", 3)], Caller(7), 1, 1)
    assert changes == [NodeCreated("/n-0000000000", b"d", OPEN_TO_ALL, 7)]
