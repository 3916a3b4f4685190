"""The journal: what was acknowledged is never lost, what was not is never shown, damage is never guessed around."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import journal as journal_module
from coordinator import requests as ask
from coordinator.access import OPEN_TO_ALL, READ_ONLY_TO_ALL
from coordinator.journal import Journal, JournalDamaged, JournalInUse, Recovered, recover
from coordinator.log_records import decode_transaction, encode_transaction
from coordinator.processor import Processor, SessionClosed, SessionOpened, State, Transaction
from coordinator.server import CoordinatorServer
from coordinator.tree import AclSet, DataSet, NodeCreated, NodeDeleted, Tree
from tests.coordinator.raw_client import RawClient, create, handshake_frame, multi, set_data, versioned, watched

TRANSACTIONS = [
    Transaction(5, 1000, (SessionOpened(1, b"0123456789abcdef", 4000),)),
    Transaction(
        6, 1001, (NodeCreated("/a", b"data", OPEN_TO_ALL, 0), NodeCreated("/a/ü", None, READ_ONLY_TO_ALL, 1))
    ),
    Transaction(8, 1002, (DataSet("/a", b""), AclSet("/a", OPEN_TO_ALL), DataSet("/a", None))),
    Transaction(9, 1003, (NodeDeleted("/a/ü"), SessionClosed(1))),
]


def wait_for(condition: Callable[[], bool]) -> asyncio.Future[None]:
    async def poll() -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)

    return asyncio.ensure_future(poll())


async def written(folder: Path, transactions: list[Transaction]) -> None:
    journal = Journal(folder, lambda: None, lambda error: None)
    journal.start(4)
    for transaction in transactions:
        journal.append(transaction)
    await journal.close()
    assert journal.durable == journal.appended == len(transactions)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def log_file(folder: Path) -> Path:
    (path,) = folder.glob("log-*")
    return path


def test_transactions_survive_their_encoding() -> None:
    for transaction in TRANSACTIONS:
        assert decode_transaction(encode_transaction(transaction)) == transaction


async def test_what_was_written_is_recovered(tmp_path: Path) -> None:
    await written(tmp_path, TRANSACTIONS)
    assert recover(tmp_path) == Recovered(None, TRANSACTIONS)
    await written(tmp_path, [Transaction(10, 0, ())])
    assert [transaction.zxid for transaction in recover(tmp_path).transactions] == [5, 6, 8, 9, 10]


async def test_a_tail_torn_at_any_byte_costs_only_the_torn_record(tmp_path: Path) -> None:
    await written(tmp_path, TRANSACTIONS)
    path = log_file(tmp_path)
    whole = path.read_bytes()
    ends = [len(whole)]
    for transaction in reversed(TRANSACTIONS):
        ends.insert(0, ends[0] - 8 - len(encode_transaction(transaction)))
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends[1:])
        assert recover(tmp_path).transactions == TRANSACTIONS[:complete]
        assert recover(tmp_path).transactions == TRANSACTIONS[:complete]  # the tail is gone for good
        assert path.stat().st_size == max([end for end in ends if end <= cut], default=ends[0])


async def test_a_tail_of_garbage_or_zeros_is_cut_off_and_written_over(tmp_path: Path) -> None:
    for tail in (bytes(4096), b"\xff" * 100, encode_transaction(TRANSACTIONS[0])):
        folder = tmp_path / str(len(tail))
        await written(folder, TRANSACTIONS[:2])
        with log_file(folder).open("ab") as file:
            file.write(tail)
        assert recover(folder).transactions == TRANSACTIONS[:2]
        await written(folder, TRANSACTIONS[2:])
        assert recover(folder).transactions == TRANSACTIONS


async def test_a_changed_byte_never_passes(tmp_path: Path) -> None:
    await written(tmp_path, TRANSACTIONS)
    path = log_file(tmp_path)
    whole = path.read_bytes()
    head = len(b"coordinator log 1\n")
    for position in range(head, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        found = recover(tmp_path).transactions
        assert found == TRANSACTIONS[: len(found)]
        assert len(found) < len(TRANSACTIONS)
    path.write_bytes(b"C" + whole[1:])
    with pytest.raises(JournalDamaged, match=path.name):
        recover(tmp_path)


async def test_damage_before_the_last_log_is_refused(tmp_path: Path) -> None:
    await written(tmp_path, TRANSACTIONS)
    path = log_file(tmp_path)
    (tmp_path / f"log-{9:016x}").write_bytes(b"coordinator log 1\n")
    assert recover(tmp_path).transactions == TRANSACTIONS
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalDamaged, match="damaged at byte"):
        recover(tmp_path)


async def test_transactions_out_of_order_are_refused(tmp_path: Path) -> None:
    await written(tmp_path, [TRANSACTIONS[1], TRANSACTIONS[0]])
    with pytest.raises(JournalDamaged, match="transaction 5 stands after 6"):
        recover(tmp_path)


async def test_a_snapshot_replaces_what_came_before_it(tmp_path: Path) -> None:
    tree = Tree()
    operations = [NodeCreated(f"/n{n}", b"x" * n, OPEN_TO_ALL, 0) for n in range(1200)]
    for change in operations:
        tree.apply(change, 7, 1)
    state = State(7, (SessionOpened(1, b"p" * 16, 4000), SessionOpened(2, b"q" * 16, 8000)), tree.nodes())
    journal = Journal(tmp_path, lambda: None, lambda error: None)
    journal.start(4)
    journal.append(TRANSACTIONS[0])
    journal.snapshot(state)
    journal.append(TRANSACTIONS[2])
    await wait_for(lambda: (tmp_path / f"snapshot-{7:016x}").exists())
    await wait_for(lambda: len(list(tmp_path.glob("log-*"))) == 1)
    journal.append(TRANSACTIONS[3])
    await journal.close()
    recovered = recover(tmp_path)
    assert recovered == Recovered(state, TRANSACTIONS[2:])
    assert recovered.state is not None
    assert Tree.from_nodes(recovered.state.nodes).nodes() == tree.nodes()
    assert names(tmp_path) == ["lock", f"log-{7:016x}", f"snapshot-{7:016x}"]

    snapshot = tmp_path / f"snapshot-{7:016x}"
    whole = snapshot.read_bytes()
    for damaged in (whole[:-1], whole[:200], whole[:300] + b"?" + whole[301:], b"", whole + b"\0"):
        snapshot.write_bytes(damaged)
        with pytest.raises(JournalDamaged, match="snapshot"):
            recover(tmp_path)


async def test_an_unfinished_snapshot_counts_for_nothing(tmp_path: Path) -> None:
    await written(tmp_path, TRANSACTIONS)
    (tmp_path / f"snapshot-{9:016x}.partial").write_bytes(b"half")
    (tmp_path / f"log-{9:016x}").write_bytes(b"coord")  # and the crash came while its log was begun
    assert recover(tmp_path) == Recovered(None, TRANSACTIONS)
    await written(tmp_path, [Transaction(10, 0, ())])
    assert len(recover(tmp_path).transactions) == 5


async def test_a_folder_has_one_master(tmp_path: Path) -> None:
    first = Journal(tmp_path, lambda: None, lambda error: None)
    with pytest.raises(JournalInUse, match="another coordinator"):
        Journal(tmp_path, lambda: None, lambda error: None)
    await first.close()
    await Journal(tmp_path, lambda: None, lambda error: None).close()


# --- the server and its journal ------------------------------------------------------------------------------------


class Gate:
    """Stands in for the sync: holds the writer thread back until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = journal_module.sync
        self._open = threading.Event()
        self._open.set()
        monkeypatch.setattr(journal_module, "sync", self._sync)

    def _sync(self, file: int) -> None:
        self._open.wait(30)
        self._real(file)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


async def nothing_comes(client: RawClient) -> bool:
    try:
        async with asyncio.timeout(0.15):
            await client.reader.readexactly(1)
    except TimeoutError:
        return True
    return False


async def test_nothing_leaves_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    server = CoordinatorServer("127.0.0.1:0", tmp_path)
    await server.start()
    writer, reader, watcher, failing = [await RawClient.connect(server.address) for _ in range(4)]
    await watcher.call(3, watched("/a", watch=True))
    gate.close()
    writer.send(1, create("/a"))
    await wait_for(lambda: server._journal.appended > server._journal.durable)
    reader.send(3, watched("/a"))  # a read that would show it
    failing.send(1, create("/a"))  # a failure that would tell of it
    newcomer = await RawClient.dial(server.address)
    newcomer.send_frame(handshake_frame())  # a session that a crash could still take away
    for client in (writer, reader, watcher, failing, newcomer):
        assert await nothing_comes(client)
    gate.open()
    assert (await writer.receive()).error == 0
    assert (await reader.receive()).error == 0
    assert (await failing.receive()).error == -110
    assert (await newcomer.receive_welcome()).timeout_ms > 0
    await watcher.call(3, watched("/a"))
    assert watcher.events == [(1, "/a")]
    await server.stop()


async def test_a_group_of_writes_shares_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    real = journal_module.sync
    monkeypatch.setattr(journal_module, "sync", lambda file: (syncs.append(file), real(file))[1])
    server = CoordinatorServer("127.0.0.1:0", tmp_path)
    await server.start()
    client = await RawClient.connect(server.address)
    before = len(syncs)
    for n in range(500):
        client.send(1, create(f"/n{n}"))
    for _ in range(500):
        assert (await client.receive()).error == 0
    assert len(syncs) - before < 100
    await server.stop()


async def test_a_journal_that_cannot_be_written_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = CoordinatorServer("127.0.0.1:0", tmp_path)
    await server.start()
    client = await RawClient.connect(server.address)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module, "sync", full)
    client.send(1, create("/a"))
    assert await client.hung_up()  # and the write was not acknowledged
    with pytest.raises(OSError, match="No space left"):
        await asyncio.wait_for(server.wait_failed(), 10)
    await server.stop()


async def test_a_restart_keeps_nodes_stats_sessions_and_ephemerals(tmp_path: Path) -> None:
    server = CoordinatorServer("127.0.0.1:0", tmp_path, tick_ms=200, snapshot_every=7)
    await server.start()
    client = await RawClient.connect(server.address, timeout_ms=3000)
    lost = await RawClient.connect(server.address, timeout_ms=400)
    assert client.welcome is not None
    await client.call(1, create("/mine", flags=1))
    await lost.call(1, create("/lost", flags=1))
    for n in range(30):
        await client.call(1, create(f"/q-{n}-", str(n).encode(), 2))
        await client.call(14, multi((5, set_data("/mine", b"x")), (13, versioned("/mine"))))
    before = await client.call(12, watched("/"))
    mine = (await client.call(4, watched("/mine"))).body
    await server.stop()

    server = CoordinatorServer("127.0.0.1:0", tmp_path, tick_ms=200)
    await server.start()
    again = await RawClient.connect(
        server.address,
        session_id=client.welcome.session_id,
        password=client.welcome.password,
        timeout_ms=3000,
        last_zxid=before.zxid,
    )
    assert again.welcome is not None
    assert again.welcome.session_id == client.welcome.session_id
    after = await again.call(12, watched("/"))
    assert sorted(after.reader.strings()) == sorted(before.reader.strings())
    assert after.body[-68:] == before.body[-68:]  # the stat
    assert (await again.call(4, watched("/mine"))).body == mine
    await again.call(3, watched("/lost", watch=True))
    while not again.events:  # the other client does not come back
        await again.call(3, watched("/"))
        await asyncio.sleep(0.02)
    assert again.events == [(2, "/lost")]
    newcomer = await RawClient.connect(server.address)
    assert newcomer.welcome is not None
    assert newcomer.welcome.session_id > again.welcome.session_id
    await server.stop()


async def test_a_wiped_folder_does_not_lock_out_clients_that_lived_through_it(tmp_path: Path) -> None:
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "first")
    await server.start()
    client = await RawClient.connect(server.address)
    seen = (await client.call(1, create("/a"))).zxid
    await server.stop()
    await asyncio.sleep(1)
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "second")
    await server.start()
    client = await RawClient.connect(server.address, last_zxid=seen)
    assert client.welcome is not None
    assert client.welcome.timeout_ms > 0
    await server.stop()


def test_replaying_gives_the_state_that_was(tmp_path: Path) -> None:
    processor = Processor(200)
    transactions = []
    peers = []
    for n in range(3):
        attached = processor.open_session(4000, bytes([n]) * 16, "127.0.0.1", 0, 5)
        peers.append(attached.peer)
        transactions.append(attached.transaction)
    for n in range(60):
        peer = peers[n % 3]
        for request in (
            ask.Create(f"/n{n % 7}", b"x", n % 4),
            ask.SetData(f"/n{n % 5}", str(n).encode(), -1),
            ask.Multi((ask.Create(f"/m{n}", b""), ask.Delete(f"/n{n % 3}", n % 2 - 1))),
            ask.SetAcl(f"/n{n % 6}", OPEN_TO_ALL, -1),
        ):
            transactions.append(processor.handle(peer, request, 0, n).transaction)
    transactions.append(processor.end_session(peers[0].session_id, 99).transaction)
    again = Processor(200)
    for transaction in transactions:
        if transaction is not None:
            again.replay(decode_transaction(encode_transaction(transaction)), 0)
    assert again.state() == processor.state()


# --- kill -9 -------------------------------------------------------------------------------------------------------

_SERVE = """
import asyncio, sys
from pathlib import Path
from coordinator.server import serve
asyncio.run(serve("127.0.0.1:0", Path(sys.argv[1]), tick_ms=200, snapshot_every=int(sys.argv[2]),
                  on_ready=lambda address: print(address, flush=True)))
"""


class Process:
    """A coordinator in a process of its own."""

    def __init__(self, folder: Path, snapshot_every: int = 100) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder), str(snapshot_every)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def end(self, number: int) -> int:
        os.kill(self._process.pid, number)
        code = self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


async def test_kill_9_in_the_midst_of_writes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[str, bytes] = {}
    sessions: list[RawClient] = []
    for round_ in range(4):
        server = Process(tmp_path)
        client = await RawClient.connect(server.address, timeout_ms=4000)
        sessions.append(client)
        for path in acknowledged:
            client.send(4, watched(path))
        for path, data in acknowledged.items():
            reply = await client.receive()
            assert reply.error == 0, path
            assert reply.reader.buffer() == data
        for owner in sessions[:-1]:
            assert owner.welcome is not None
            again = await RawClient.connect(
                server.address, session_id=owner.welcome.session_id, password=owner.welcome.password
            )
            assert again.welcome is not None
            assert again.welcome.session_id == owner.welcome.session_id
            own = (await again.call(103, b"\0\0\0\0")).reader.strings()
            assert len(own) >= 1
        sent: list[tuple[str, bytes]] = []
        for n in range(3000):
            path, data = f"/r{round_}-{n}", os.urandom(n % 50)
            client.send(1, create(path, data, flags=n % 100 == 0))
            sent.append((path, data))
        for n in range(700 + 300 * round_):
            assert (await client.receive()).error == 0
            acknowledged[sent[n][0]] = sent[n][1]
        server.end(signal.SIGKILL)
        client.drop()
    server = Process(tmp_path)
    assert server.end(signal.SIGTERM) == 0
    assert recover(tmp_path).state is not None
