"""Where a replicated table keeps what in the coordination service, and the multis that make it.

Names, values and order of creation are those of ClickHouse 26.9 (StorageReplicatedMergeTree.cpp,
`createTableIfNotExists`, `createReplica`, `createNewZooKeeperNodes`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coordinator.api import Create, Operation, Set
from replica.errors import BadArguments, UnexpectedNodeInZooKeeper

_PATH = re.compile(r"(/[^/\x00-\x1f\x7f-\x9f]+)+")
_RESERVED = ("zookeeper", "keeper")
_REPLICA_NAME = re.compile(r"[^/\x00-\x1f\x7f-\x9f]+")


def checked_table_path(path: str) -> str:
    """The path if it can be a table's root. Raises BadArguments."""
    if not _PATH.fullmatch(path) or any(step in (".", "..") for step in path.split("/")):
        raise BadArguments(f"{path!r} cannot be a table's path in the coordination service: write /like/this")
    if path.split("/")[1] in _RESERVED:
        raise BadArguments(f"{path!r} cannot be a table's path: /{path.split('/')[1]} belongs to the service itself")
    return path


def checked_replica_name(name: str) -> str:
    """The name if it can be a replica's znode. Raises BadArguments."""
    if not _REPLICA_NAME.fullmatch(name) or name in (".", ".."):
        raise BadArguments(f"{name!r} cannot be a replica's name: it must be one step of a znode path")
    return name


def sequence_number(name: str) -> int:
    """The number at the end of a sequential znode's name: `log-0000000012` is 12.

    Raises UnexpectedNodeInZooKeeper for a name that does not end in ten digits.
    """
    digits = name[-10:]
    if not (len(digits) == 10 and digits.isascii() and digits.isdigit()):
        raise UnexpectedNodeInZooKeeper(f"{name!r} is not the name of a sequential znode: remove it")
    return int(digits)


@dataclass(frozen=True, slots=True)
class ReplicaZnodes:
    """The znodes of one replica of one table."""

    table: TableZnodes
    name: str

    @property
    def root(self) -> str:
        return f"{self.table.replicas}/{self.name}"

    @property
    def host(self) -> str:
        return f"{self.root}/host"

    @property
    def is_active(self) -> str:
        return f"{self.root}/is_active"

    @property
    def is_lost(self) -> str:
        return f"{self.root}/is_lost"

    @property
    def log_pointer(self) -> str:
        return f"{self.root}/log_pointer"

    @property
    def queue(self) -> str:
        return f"{self.root}/queue"

    @property
    def parts(self) -> str:
        return f"{self.root}/parts"

    @property
    def force_restore_data(self) -> str:
        """An operator makes it: the replica is to start however much of its disk does not fit its znodes."""
        return f"{self.root}/flags/force_restore_data"

    @property
    def metadata_version(self) -> str:
        return f"{self.root}/metadata_version"

    @property
    def creator_info(self) -> str:
        return f"{self.root}/creator_info"

    @property
    def min_unprocessed_insert_time(self) -> str:
        return f"{self.root}/min_unprocessed_insert_time"

    @property
    def max_processed_insert_time(self) -> str:
        return f"{self.root}/max_processed_insert_time"

    def part(self, name: str) -> str:
        return f"{self.parts}/{name}"

    def queue_entry(self, name: str) -> str:
        return f"{self.queue}/{name}"


@dataclass(frozen=True, slots=True)
class TableZnodes:
    """The znodes of one table, shared by its replicas."""

    root: str

    @property
    def metadata(self) -> str:
        return f"{self.root}/metadata"

    @property
    def columns(self) -> str:
        return f"{self.root}/columns"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    @property
    def block_numbers(self) -> str:
        return f"{self.root}/block_numbers"

    @property
    def blocks(self) -> str:
        """Where deduplication ids were before there was `deduplication_hashes`."""
        return f"{self.root}/blocks"

    @property
    def deduplication_hashes(self) -> str:
        return f"{self.root}/deduplication_hashes"

    @property
    def replicas(self) -> str:
        return f"{self.root}/replicas"

    @property
    def dropped(self) -> str:
        """There while the znodes of the table are being removed."""
        return f"{self.root}/dropped"

    @property
    def dropped_lock(self) -> str:
        return f"{self.dropped}/lock"

    @property
    def insert_lock_value(self) -> str:
        """What a block number's lock holds while an insert with deduplication owns it."""
        return f"{self.root}/temp/abandonable_lock-insert"

    @property
    def other_lock_value(self) -> str:
        return f"{self.root}/temp/abandonable_lock-other"

    @property
    def alter_partition_version(self) -> str:
        """Its version tells those who change whole partitions whether they are alone."""
        return f"{self.root}/alter_partition_version"

    @property
    def lost_part_count(self) -> str:
        return f"{self.root}/lost_part_count"

    @property
    def table_shared_id(self) -> str:
        return f"{self.root}/table_shared_id"

    def replica(self, name: str) -> ReplicaZnodes:
        return ReplicaZnodes(self, name)

    def log_entry(self, name: str) -> str:
        return f"{self.log}/{name}"

    def partition(self, partition_id: str) -> str:
        return f"{self.block_numbers}/{partition_id}"

    def attached_from_another_table(self, partition_id: str, checksum: str) -> str:
        """The id under which ATTACH PARTITION FROM remembers a part by its content."""
        return f"{self.blocks}/{partition_id}_replace_from_{checksum}"

    def deduplication_hash(self, block_id: str) -> str:
        return f"{self.deduplication_hashes}/{block_id}"

    def deduplication_directory(self, name: str) -> str:
        """Where the ids of one generation are: `blocks`, `async_blocks` or `deduplication_hashes`."""
        return f"{self.root}/{name}"


def table_creation(table: TableZnodes, replica: ReplicaZnodes, contents: ReplicaContents) -> list[Operation]:
    """The multi that makes a new table together with its first replica."""
    root = table.root
    paths_and_values = [
        (root, ""),
        (table.metadata, contents.metadata),
        (table.columns, contents.columns),
        (table.log, ""),
        (table.blocks, ""),
        (f"{root}/async_blocks", ""),
        (table.deduplication_hashes, ""),
        (table.block_numbers, ""),
        (f"{root}/nonincrement_block_numbers", ""),
        (f"{root}/temp", ""),
        (table.insert_lock_value, ""),
        (table.other_lock_value, ""),
        (table.replicas, f"last added replica: {replica.name}"),
        (f"{root}/quorum", ""),
        (f"{root}/quorum/last_part", ""),
        (f"{root}/quorum/failed_parts", ""),
        (f"{root}/mutations", ""),
    ]
    creates: list[Operation] = [Create(path, value.encode()) for path, value in paths_and_values]
    return creates + _replica_creates(replica, contents)


def replica_creation(
    table: TableZnodes, replica: ReplicaZnodes, contents: ReplicaContents, replicas_version: int
) -> list[Operation]:
    """The multi that joins a table as one more replica; refused when another joined meanwhile."""
    announce = Set(table.replicas, f"last added replica: {replica.name}".encode(), replicas_version)
    return [*_replica_creates(replica, contents), announce]


@dataclass(frozen=True, slots=True)
class ReplicaContents:
    """What a new replica's znodes hold."""

    metadata: str
    columns: str
    metadata_version: int
    is_lost: bool
    creator_info: str

    def by_znode(self) -> list[tuple[str, str]]:
        """Names below the replica's root, in order of creation, with their values."""
        return [
            ("host", ""),
            ("log_pointer", ""),
            ("queue", ""),
            ("parts", ""),
            ("flags", ""),
            ("is_lost", "1" if self.is_lost else "0"),
            ("metadata", self.metadata),
            ("columns", self.columns),
            ("metadata_version", str(self.metadata_version)),
            ("min_unprocessed_insert_time", ""),
            ("max_processed_insert_time", ""),
            ("mutation_pointer", ""),
            ("creator_info", self.creator_info),
        ]


def _replica_creates(replica: ReplicaZnodes, contents: ReplicaContents) -> list[Operation]:
    below = [Create(f"{replica.root}/{name}", value.encode()) for name, value in contents.by_znode()]
    return [Create(replica.root), *below]


def later_additions(table: TableZnodes) -> list[tuple[str, str]]:
    """Znodes that newer releases added: every replica makes the missing ones, one by one, whenever it starts."""
    root = table.root
    return [
        (f"{root}/quorum", ""),
        (f"{root}/quorum/last_part", ""),
        (f"{root}/quorum/failed_parts", ""),
        (f"{root}/mutations", ""),
        (f"{root}/quorum/parallel", ""),
        (f"{root}/part_moves_shard", ""),
        (f"{root}/pinned_part_uuids", '{"part_uuids":"[]"}'),
        (table.alter_partition_version, ""),
        (f"{root}/async_blocks", ""),
        (table.deduplication_hashes, ""),
        (table.lost_part_count, ""),
        (f"{root}/temp/abandonable_lock-insert", ""),
        (f"{root}/temp/abandonable_lock-other", ""),
        (f"{root}/lightweight_updates", ""),
        (f"{root}/lightweight_updates/in_progress", ""),
    ]


def leaders(table: TableZnodes) -> list[Operation]:
    """What tells releases that still elect a leader that every replica is one."""
    election = f"{table.root}/leader_election"
    return [Create(election), Create(f"{election}/leader_election-0", b"all (multiple leaders Ok)")]


@dataclass(frozen=True, slots=True)
class Host:
    """The value of a replica's `host` znode: where others reach it."""

    host: str
    port: int
    tcp_port: int
    database: str
    table: str
    scheme: str = "grpc"

    def to_text(self) -> str:
        return (
            f"host: {self.host}\nport: {self.port}\ntcp_port: {self.tcp_port}\n"
            f"database: {self.database}\ntable: {self.table}\nscheme: {self.scheme}\n"
        )

    @staticmethod
    def parse(text: str) -> Host:
        """Raises BadArguments for text of another form (an empty one: the replica never was active)."""
        lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        try:
            return Host(
                lines["host"],
                int(lines["port"]),
                int(lines["tcp_port"]),
                lines["database"],
                lines["table"],
                lines.get("scheme", "http"),
            )
        except (KeyError, ValueError) as problem:
            raise BadArguments(f"not the value of a host znode: {text!r}") from problem

    @property
    def interserver_address(self) -> str:
        return f"{self.host}:{self.port}"
