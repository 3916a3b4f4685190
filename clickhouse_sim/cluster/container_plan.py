"""What container each member of a cluster becomes: image, command, environment, where its data lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from clickhouse_sim.cluster.coordination import KEEPER_PORT, ZOOKEEPER_PORT
from clickhouse_sim.cluster.folder import COORDINATOR, Settings
from clickhouse_sim.cluster.member_command import service_arguments

CLUSTER_LABEL = "chsim.cluster"
MEMBER_LABEL = "chsim.member"

REPLICA_PORT = 9000
DATA = "/data"
KEEPER_DATA = "/var/lib/clickhouse-keeper"
KEEPER_FILE = "/etc/clickhouse-keeper/keeper_config.xml"


@dataclass(frozen=True, slots=True)
class Image:
    """An image, the variable that names another one, and how to get the one that is meant."""

    variable: str
    default: str
    how_to_get: str

    @property
    def name(self) -> str:
        return os.environ.get(self.variable) or self.default


OUR_IMAGE = Image("CHSIM_IMAGE", "clickhouse-sim", "docker build -f compose/Dockerfile -t {} . in a checkout")
ZOOKEEPER_IMAGE = Image("CHSIM_ZOOKEEPER_IMAGE", "zookeeper:3.8", "docker pull {}")
KEEPER_IMAGE = Image("CHSIM_KEEPER_IMAGE", "clickhouse/clickhouse-keeper:25.8-alpine", "docker pull {}")


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """`port` is where clients ask, `data` where the volume goes, `files` are written before it starts."""

    image: Image
    port: int
    data: str = DATA
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def container_plan(settings: Settings, member: str) -> ContainerPlan:
    """The container of one member; all of them find each other by name in a network of their own."""
    if member == COORDINATOR:
        return _ours(settings, member, settings.coordinator_port)
    if member in settings.replica_names:
        return _ours(settings, member, REPLICA_PORT, "--interserver-host", member)
    return _keeper(settings, member) if settings.keeper else _zookeeper(settings, member)


def _ours(settings: Settings, member: str, port: int, *more: str) -> ContainerPlan:
    arguments = service_arguments(settings, member, DATA)
    return ContainerPlan(OUR_IMAGE, port, command=(*arguments, "--listen", f"0.0.0.0:{port}", *more))


def _zookeeper(settings: Settings, member: str) -> ContainerPlan:
    """The official image's variables: https://hub.docker.com/_/zookeeper."""
    names = settings.coordinator_names
    tick_ms = min(2000, max(250, round(settings.session_timeout * 1000 / 4)))
    servers = " ".join(
        f"server.{number}={name}:2888:3888;{ZOOKEEPER_PORT}" for number, name in enumerate(names, start=1)
    )
    environment = {
        "ZOO_MY_ID": str(names.index(member) + 1),
        "ZOO_SERVERS": servers,
        "ZOO_STANDALONE_ENABLED": "true",
        "ZOO_TICK_TIME": str(tick_ms),
        "ZOO_INIT_LIMIT": "20",
        "ZOO_SYNC_LIMIT": "10",
        "ZOO_MAX_CLIENT_CNXNS": "0",
        "ZOO_ADMINSERVER_ENABLED": "false",
        "ZOO_4LW_COMMANDS_WHITELIST": "*",
        "ZOO_CFG_EXTRA": f"maxSessionTimeout={max(20 * tick_ms, round(settings.session_timeout * 1000))}",
        "ZOO_DATA_DIR": DATA,
        "ZOO_DATA_LOG_DIR": DATA,
    }
    return ContainerPlan(ZOOKEEPER_IMAGE, ZOOKEEPER_PORT, environment=environment)


def _keeper(settings: Settings, member: str) -> ContainerPlan:
    number = settings.coordinator_names.index(member) + 1
    return ContainerPlan(
        KEEPER_IMAGE,
        KEEPER_PORT,
        data=KEEPER_DATA,
        environment={"KEEPER_SERVER_ID": str(number)},
        files={KEEPER_FILE: keeper_configuration(settings)},
    )


def keeper_configuration(settings: Settings) -> str:
    """The configuration of every ClickHouse Keeper of the cluster; which of them it is, KEEPER_SERVER_ID tells."""
    servers = "".join(
        f"""
            <server>
                <id>{number}</id>
                <hostname>{name}</hostname>
                <port>9234</port>
            </server>"""
        for number, name in enumerate(settings.coordinator_names, start=1)
    )
    return f"""<clickhouse>
    <listen_host>0.0.0.0</listen_host>
    <logger>
        <level>information</level>
        <console>true</console>
    </logger>
    <keeper_server>
        <tcp_port>{KEEPER_PORT}</tcp_port>
        <server_id from_env="KEEPER_SERVER_ID"/>
        <log_storage_path>{KEEPER_DATA}/coordination/log</log_storage_path>
        <snapshot_storage_path>{KEEPER_DATA}/coordination/snapshots</snapshot_storage_path>
        <coordination_settings>
            <min_session_timeout_ms>{min(10_000, round(settings.session_timeout * 1000))}</min_session_timeout_ms>
            <session_timeout_ms>{max(30_000, round(settings.session_timeout * 1000))}</session_timeout_ms>
        </coordination_settings>
        <raft_configuration>{servers}
        </raft_configuration>
    </keeper_server>
</clickhouse>
"""
