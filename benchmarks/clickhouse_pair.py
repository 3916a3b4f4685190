"""Two servers of the real ClickHouse, as Debian installs it, on loopback, with folders of their own.

Nothing merges, as that is not what is compared, and the servers do not slow inserts down for having many parts.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from benchmarks.blocks import COLUMNS, ORDER_BY, PARTITION_BY, Block
from benchmarks.processes import LOOPBACK, NotInstalled, NotMeasured, Process, free_ports
from benchmarks.zookeeper import ZooKeeper, packets_received

INSTALL = "apt-get install -y clickhouse-server clickhouse-client"
_SECONDS = 120.0
_NAMES = ("r1", "r2")
_CONFIG = """\
<yandex>
  <logger><level>warning</level><log>{folder}/log</log><errorlog>{folder}/errors</errorlog></logger>
  <listen_host>{host}</listen_host>
  <http_port>{http}</http_port>
  <tcp_port>{tcp}</tcp_port>
  <interserver_http_host>{host}</interserver_http_host>
  <interserver_http_port>{interserver}</interserver_http_port>
  <path>{folder}/data/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <user_files_path>{folder}/files/</user_files_path>
  <format_schema_path>{folder}/schemas/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
  <timezone>UTC</timezone>
  <max_concurrent_queries>100</max_concurrent_queries>
  <zookeeper><node><host>{host}</host><port>{zookeeper}</port></node></zookeeper>
  <macros><shard>01</shard><replica>{name}</replica></macros>
  <merge_tree>
    <max_bytes_to_merge_at_max_space_in_pool>1</max_bytes_to_merge_at_max_space_in_pool>
    <parts_to_delay_insert>1000000</parts_to_delay_insert>
    <parts_to_throw_insert>1000000</parts_to_throw_insert>
  </merge_tree>
</yandex>
"""
_USERS = """\
<yandex>
  <profiles><default/></profiles>
  <quotas><default/></quotas>
  <users><default>
    <password></password>
    <networks><ip>{host}</ip></networks>
    <profile>default</profile>
    <quota>default</quota>
  </default></users>
</yandex>
"""
_CREATE = (
    f"CREATE TABLE default.t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS)}) "
    f"ENGINE = ReplicatedMergeTree('/bench/clickhouse/t', '{{replica}}') "
    f"PARTITION BY {PARTITION_BY} ORDER BY {ORDER_BY}"
)


class ClickHousePair:
    """The pair on a ZooKeeper. Raises NotInstalled."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        program = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path="/usr/sbin")
        if program is None:
            raise NotInstalled(f"ClickHouse is not installed here: {INSTALL}")
        self._program = program
        self._zookeeper = zookeeper
        self._folders = [folder / name for name in _NAMES]
        self._http_ports = free_ports(len(_NAMES))
        for name, place, port in zip(_NAMES, self._folders, self._http_ports, strict=True):
            self._configure(name, place, port)
        self._running: list[Process | None] = [None, None]
        self.name = "ClickHouse"

    def __enter__(self) -> ClickHousePair:
        try:
            for replica in range(len(_NAMES)):
                self.start(replica)
            for replica in range(len(_NAMES)):
                self._query(replica, _CREATE)
            self.name = f"ClickHouse {self._query(0, 'SELECT version()')}"
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in range(len(_NAMES)):
            self.stop(replica)

    def connect(self, replica: int) -> HttpConnection:
        return HttpConnection(self._http_ports[replica])

    def rows(self, replica: int) -> int:
        return int(self._query(replica, "SELECT count() FROM default.t"))

    def stop(self, replica: int) -> None:
        process = self._running[replica]
        if process is not None:
            process.stop()

    def start(self, replica: int) -> None:
        folder = self._folders[replica]
        process = Process([self._program, f"--config-file={folder}/config.xml"], folder / "output")
        self._running[replica] = process
        process.wait_until(lambda: self._answers(replica), f"ClickHouse's {_NAMES[replica]} serves")

    def requests(self) -> int:
        return packets_received(self._zookeeper.address)

    def _configure(self, name: str, folder: Path, http_port: int) -> None:
        tcp_port, interserver_port = free_ports(2)
        folder.mkdir(parents=True)
        (folder / "users.xml").write_text(_USERS.format(host=LOOPBACK))
        (folder / "config.xml").write_text(
            _CONFIG.format(
                folder=folder,
                host=LOOPBACK,
                http=http_port,
                tcp=tcp_port,
                interserver=interserver_port,
                zookeeper=self._zookeeper.address.partition(":")[2],
                name=name,
            )
        )

    def _answers(self, replica: int) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, NotMeasured):
            return self._query(replica, "SELECT 1") == "1"
        return False

    def _query(self, replica: int, text: str) -> str:
        with contextlib.closing(self.connect(replica)) as connection:
            return connection.query(text)


class HttpConnection:
    """A connection that is kept from one request to the next."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection(LOOPBACK, port, timeout=_SECONDS)

    def prepare(self, block: Block) -> None:
        assert block.row_binary

    def insert(self, block: Block) -> None:
        self.query("INSERT INTO default.t FORMAT RowBinary", block.row_binary)

    def query(self, text: str, data: bytes = b"") -> str:
        """The answer. Raises NotMeasured with what the server says of an error."""
        self._http.request("POST", f"/?query={quote(text)}", data)
        response = self._http.getresponse()
        answer = response.read().decode(errors="replace").strip()
        if response.status != 200:
            raise NotMeasured(f"ClickHouse on {text[:60]}: {answer[:500]}")
        return answer

    def close(self) -> None:
        self._http.close()
