"""Two replicas of ours as processes of their own, on a ZooKeeper or on our coordinator."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from pathlib import Path
from types import TracebackType

import pyarrow.compute as pc

from benchmarks.blocks import COLUMNS, ORDER_BY, PARTITION_BY, Block
from benchmarks.processes import LOOPBACK, NotMeasured, Process, free_ports
from benchmarks.zookeeper import ZooKeeper, packets_received
from clickhouse_sim.cluster.endpoint_client import EndpointClient
from clickhouse_sim.sql.run import create
from replica.commands import ColumnDefinition, CreateTable, InsertStatus

# Nor are there any in the ClickHouse beside: what is measured is inserts and fetches.
_NO_MERGES = {"max_bytes_to_merge_at_max_space_in_pool": "1", "max_bytes_to_merge_at_min_space_in_pool": "1"}
_NAMES = ("r1", "r2")
_ROOT = Path(__file__).parents[1]


class OurPair:
    """The pair on a ZooKeeper, or on our coordinator when there is none."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper | None) -> None:
        self._folder = folder
        self._coordinator: Process | None = None
        if zookeeper is None:
            self.name = "our coordinator"
            self._service = f"{LOOPBACK}:{free_ports(1)[0]}"
        else:
            self.name = f"ZooKeeper {zookeeper.version}"
            self._service = zookeeper.address
        self._is_on_zookeeper = zookeeper is not None
        self._running: list[Process | None] = [None, None]

    @property
    def pids(self) -> dict[str, int]:
        """What runs, by name: for a profiler."""
        named = {"coordinator": self._coordinator, **dict(zip(_NAMES, self._running, strict=True))}
        return {name: process.pid for name, process in named.items() if process is not None}

    def __enter__(self) -> OurPair:
        try:
            self._folder.mkdir(parents=True)
            if not self._is_on_zookeeper:
                self._start_coordinator()
            for replica in range(len(_NAMES)):
                self.start(replica)
            self._create()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in range(len(_NAMES)):
            self.stop(replica)
        if self._coordinator is not None:
            self._coordinator.stop()

    def connect(self, replica: int) -> FlightConnection:
        return FlightConnection(self._endpoint(_NAMES[replica]))

    def rows(self, replica: int) -> int:
        with EndpointClient(self._endpoint(_NAMES[replica])) as client:
            parts = client.scan("system", "parts")
        return pc.sum(parts.filter(pc.equal(parts["active"], 1))["rows"]).as_py() or 0

    def stop(self, replica: int) -> None:
        process = self._running[replica]
        if process is not None:
            process.stop()

    def start(self, replica: int) -> None:
        name = _NAMES[replica]
        self._running[replica] = self._serve(
            name, "replica", "serve", "--name", name, "--zookeeper", self._service, "--session-timeout", "30"
        )

    def requests(self) -> int:
        return packets_received(self._service)

    def _start_coordinator(self) -> None:
        self._coordinator = self._serve("coordinator", "coordinator", "serve", "--listen", self._service)

    def _serve(self, member: str, *arguments: str) -> Process:
        """Run one of our services until it says that it serves."""
        folder = self._folder / member
        folder.mkdir(exist_ok=True)
        (folder / "ready.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "clickhouse_sim", *arguments, "--dir", str(folder)]
        process = Process(command, self._folder / f"{member}.log", {"PYTHONPATH": str(_ROOT)})
        try:
            process.wait_until((folder / "ready.json").exists, f"our {member} serves")
        except BaseException:
            process.stop()
            raise
        return process

    def _endpoint(self, member: str) -> str:
        ready = json.loads((self._folder / member / "ready.json").read_text())
        return str(ready["addresses"]["endpoint"])

    def _create(self) -> None:
        statement = CreateTable(
            database="default",
            table="t",
            columns=tuple(ColumnDefinition(name, kind) for name, kind in COLUMNS),
            zookeeper_path="/bench/ours/t",
            replica_name="{replica}",
            partition_by=PARTITION_BY,
            order_by=ORDER_BY,
            settings=_NO_MERGES,
            uuid=str(uuid.uuid4()),
        )
        with contextlib.ExitStack() as stack:
            clients = {name: stack.enter_context(EndpointClient(self._endpoint(name))) for name in _NAMES}
            for creation in create(statement, clients):
                if creation.error is not None:
                    raise NotMeasured(f"our {creation.replica} makes no table: {creation.error}")


class FlightConnection:
    """A connection that is kept from one INSERT to the next."""

    def __init__(self, address: str) -> None:
        self._client = EndpointClient(address)

    def prepare(self, block: Block) -> None:
        assert block.arrow is not None

    def insert(self, block: Block) -> None:
        with self._client.insert("default", "t", block.arrow.schema) as insert:
            outcome = insert.send(block.arrow)
        if outcome.status is not InsertStatus.STORED:
            raise NotMeasured(f"our replica answers {outcome.status}: {outcome.parts}")

    def close(self) -> None:
        self._client.close()
