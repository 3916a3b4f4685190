"""One server of the real ClickHouse, as Debian installs it (18.16), on loopback, with a folder of its own."""

from __future__ import annotations

import contextlib
import http.client
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.processes import LOOPBACK, NotInstalled, NotMeasured, Process, free_ports

INSTALL = "apt-get install -y clickhouse-server clickhouse-client"
_SECONDS = 120.0
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
  <zookeeper>
    <node><host>{host}</host><port>{zookeeper}</port></node>
    <session_timeout_ms>{session_timeout_ms}</session_timeout_ms>
  </zookeeper>
  <macros><shard>01</shard><replica>{name}</replica></macros>
  <merge_tree>{merge_tree}</merge_tree>
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


class ClickHouseServer:
    """A server on the ZooKeeper at `zookeeper` (`host:port`), with `{replica}` and `name` the same.

    `merge_tree` are settings of all its tables. Raises NotInstalled.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        zookeeper: str,
        merge_tree: Mapping[str, int] | None = None,
        session_timeout_seconds: float = 30.0,
    ) -> None:
        program = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path="/usr/sbin")
        if program is None:
            raise NotInstalled(f"ClickHouse is not installed here: {INSTALL}")
        self.name = name
        self._program = program
        self._folder = folder
        self._process: Process | None = None
        self.http_port, tcp_port, interserver_port = free_ports(3)
        folder.mkdir(parents=True)
        (folder / "users.xml").write_text(_USERS.format(host=LOOPBACK))
        (folder / "config.xml").write_text(
            _CONFIG.format(
                folder=folder,
                host=LOOPBACK,
                http=self.http_port,
                tcp=tcp_port,
                interserver=interserver_port,
                zookeeper=zookeeper.partition(":")[2],
                session_timeout_ms=round(session_timeout_seconds * 1000),
                name=name,
                merge_tree="".join(f"<{key}>{value}</{key}>" for key, value in (merge_tree or {}).items()),
            )
        )

    def start(self) -> None:
        """Start it, with what it has; returns when it answers. Raises NotMeasured when it does not."""
        command = [self._program, f"--config-file={self._folder}/config.xml"]
        self._process = Process(command, self._folder / "output")
        self._process.wait_until(self._answers, f"ClickHouse's {self.name} serves")

    def stop(self) -> None:
        """Let it end in order. Harmless when it is gone."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it with SIGKILL, which lets it do nothing more."""
        if self._process is not None:
            self._process.kill()

    def query(self, text: str, settings: Mapping[str, int] | None = None) -> str:
        """The answer over a connection of its own. Raises NotMeasured with what the server says of an error."""
        with contextlib.closing(HttpConnection(self.http_port)) as connection:
            return connection.query(text, settings=settings)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, NotMeasured):
            return self.query("SELECT 1") == "1"
        return False


class HttpConnection:
    """A connection that is kept from one request to the next."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection(LOOPBACK, port, timeout=_SECONDS)

    def query(self, text: str, data: bytes = b"", settings: Mapping[str, int] | None = None) -> str:
        """The answer. Raises NotMeasured with what the server says of an error."""
        # A text may be longer than a URL; with data behind it, it must be one.
        in_url = {"query": text} if data else {}
        self._http.request("POST", f"/?{urlencode({**in_url, **(settings or {})})}", data or text.encode())
        response = self._http.getresponse()
        answer = response.read().decode(errors="replace").strip()
        if response.status != 200:
            raise NotMeasured(f"ClickHouse on {text[:60]}: {answer[:500]}")
        return answer

    def close(self) -> None:
        self._http.close()
