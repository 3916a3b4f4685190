"""`coordinator serve` and `replica serve`: the processes that a cluster is made of, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from clickhouse_sim.cli.zookeeper_address import ZooKeeperAddress

_data_folder = click.option(
    "--dir", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Where its data lie."
)


class _Address(click.ParamType[tuple[str, int]]):
    name = "host:port"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not host:port, as in 127.0.0.1:2181", param, context)
        return host, int(port)


class _ServerSetting(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE` of a server setting that there is, with a value that it takes."""

    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        from replica.errors import ClickHouseError
        from replica.settings import ServerSettings

        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is not NAME=VALUE, as in background_fetches_pool_size=4", param, context)
        try:
            ServerSettings.from_text({name: text})
        except ClickHouseError as problem:
            self.fail(problem.message, param, context)
        return name, text


server_settings = click.option(
    "--setting",
    "settings",
    type=_ServerSetting(),
    multiple=True,
    help="A server setting, as background_fetches_pool_size=4 (docs/server-settings.md); may be repeated.",
)


def _replica_name(context: click.Context, option: click.Parameter, value: str) -> str:
    from replica.errors import BadArguments
    from replica.znodes import checked_replica_name

    try:
        return checked_replica_name(value)
    except BadArguments as problem:
        raise click.BadParameter(problem.message) from None


@click.group()
def coordinator() -> None:
    """The coordination service, which speaks ZooKeeper's protocol.

    \b
    chsim coordinator serve --dir coordinator
    """


@coordinator.command("serve")
@click.option("--listen", type=_Address(), default="127.0.0.1:2181", show_default=True, help="Port 0: any free one.")
@_data_folder
@click.option(
    "--tick-ms",
    type=click.IntRange(10, 60_000),
    default=2000,
    show_default=True,
    help="ZooKeeper's tickTime: sessions may last from 2 to 20 ticks.",
)
def serve_coordinator(listen: tuple[str, int], folder: Path, tick_ms: int) -> None:
    """Serve until SIGTERM.

    \b
    chsim coordinator serve --listen 127.0.0.1:2181 --dir coordinator
    """
    from clickhouse_sim.cluster.coordinator_process import serve

    serve(listen, folder, tick_ms)


@click.group()
def replica() -> None:
    """One server with its replicas of tables.

    \b
    chsim replica serve --name r1 --zookeeper 127.0.0.1:2181 --dir r1
    """


@replica.command("serve")
@click.option("--name", required=True, callback=_replica_name, help="What {replica} means in CREATE TABLE.")
@click.option(
    "--zookeeper", required=True, type=ZooKeeperAddress(), help="The coordination service; its chroot must exist."
)
@_data_folder
@click.option("--shard", default="01", show_default=True, help="What {shard} means in CREATE TABLE.")
@click.option("--listen", type=_Address(), default="127.0.0.1:0", show_default=True, help="Where clients connect.")
@click.option(
    "--interserver-host",
    metavar="HOST",
    default="",
    help="Where other replicas fetch from, if it is not the host listened on (as in containers: 0.0.0.0).",
)
@click.option("--session-timeout", type=click.FloatRange(0.5, 600), default=30.0, show_default=True, help="Seconds.")
@server_settings
def serve_replica(
    name: str,
    zookeeper: str,
    folder: Path,
    shard: str,
    listen: tuple[str, int],
    interserver_host: str,
    session_timeout: float,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Serve until SIGTERM.

    \b
    chsim replica serve --name r1 --zookeeper 127.0.0.1:2181 --dir r1
    """
    from clickhouse_sim.cluster.replica_process import ReplicaOptions, serve
    from replica.settings import ServerSettings

    chosen = ServerSettings.from_text(dict(settings))
    serve(ReplicaOptions(name, shard, zookeeper, folder, listen, session_timeout, chosen, interserver_host))
