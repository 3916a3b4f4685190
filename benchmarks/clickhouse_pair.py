"""Two servers of the real ClickHouse, as Debian installs it, on loopback, with folders of their own.

Nothing merges, as that is not what is compared, and the servers do not slow inserts down for having many parts.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from benchmarks.blocks import COLUMNS, ORDER_BY, PARTITION_BY, Block
from benchmarks.clickhouse_server import ClickHouseServer, HttpConnection
from benchmarks.zookeeper import ZooKeeper, packets_received

_NAMES = ("r1", "r2")
_MERGE_TREE = {
    "max_bytes_to_merge_at_max_space_in_pool": 1,
    "parts_to_delay_insert": 1_000_000,
    "parts_to_throw_insert": 1_000_000,
}
_CREATE = (
    f"CREATE TABLE default.t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS)}) "
    f"ENGINE = ReplicatedMergeTree('/bench/clickhouse/t', '{{replica}}') "
    f"PARTITION BY {PARTITION_BY} ORDER BY {ORDER_BY}"
)


class ClickHousePair:
    """The pair on a ZooKeeper. Raises NotInstalled."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._servers = [ClickHouseServer(name, folder / name, zookeeper.address, _MERGE_TREE) for name in _NAMES]
        self.name = "ClickHouse"

    def __enter__(self) -> ClickHousePair:
        try:
            for server in self._servers:
                server.start()
            for server in self._servers:
                server.query(_CREATE)
            self.name = f"ClickHouse {self._servers[0].query('SELECT version()')}"
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.stop()

    def connect(self, replica: int) -> InsertConnection:
        return InsertConnection(self._servers[replica].http_port)

    def rows(self, replica: int) -> int:
        return int(self._servers[replica].query("SELECT count() FROM default.t"))

    def stop(self, replica: int) -> None:
        self._servers[replica].stop()

    def start(self, replica: int) -> None:
        self._servers[replica].start()

    def requests(self) -> int:
        return packets_received(self._zookeeper.address)


class InsertConnection(HttpConnection):
    """A connection that brings blocks."""

    def prepare(self, block: Block) -> None:
        assert block.row_binary

    def insert(self, block: Block) -> None:
        self.query("INSERT INTO default.t FORMAT RowBinary", block.row_binary)
