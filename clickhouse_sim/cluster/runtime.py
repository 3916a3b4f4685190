"""What runs the members of a cluster, as the cluster sees it: processes here, containers, or somebody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from clickhouse_sim.cluster.folder import Link, Ready

READY_SECONDS = 60.0
STOP_SECONDS = 15.0


class Condition(StrEnum):
    """What a member does, as far as can be told from outside."""

    SERVES = "serves"
    STARTING = "starting"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member and its process.

    The addresses are those for clients on this machine, empty where it does not serve or has none; `log` is where its
    log is, for people.
    """

    name: str
    condition: Condition
    pid: int | None
    endpoint: str
    interserver: str
    log: str

    @property
    def running(self) -> bool:
        return self.condition is Condition.SERVES


class Runtime(Protocol):
    """Runs the members of one cluster. Whoever asks holds the folder's lock where something changes.

    Every method raises ClusterUnreachable when what runs the members cannot be reached, and ClusterError, which says
    what it needs, for what it cannot do.
    """

    def prepare(self) -> None:
        """Get ready for a first start. Raises ClusterUnreachable, with nothing made, when something is missing."""
        ...

    def start(self, members: Sequence[str]) -> list[Ready]:
        """Start these members together; what they say once they serve. Raises ClusterError if one does not come up
        within READY_SECONDS; then all of them are ended."""
        ...

    def stop(self, members: Sequence[str]) -> list[str]:
        """End them in order, by force after STOP_SECONDS, also those that are paused; the names of those that ran."""
        ...

    def clear(self, *, data: bool) -> None:
        """Remove what was made to run the members, now stopped; their data too, or not."""
        ...

    def kill(self, member: str) -> int:
        """End a running member as a crash would; its pid."""
        ...

    def pause(self, member: str) -> int:
        """Let a running member do nothing, not even notice it; its pid."""
        ...

    def resume(self, member: str) -> int:
        """Let a paused member go on; its pid."""
        ...

    def cut(self, links: Sequence[Link]) -> None:
        """Let nothing pass over these links, and everything over all others."""
        ...

    def state(self, member: str) -> MemberState: ...

    def log(self, member: str, lines: int, follow: bool) -> Iterator[str]:
        """The last lines of what it wrote, and with `follow` what it adds. ClusterError when it has never run."""
        ...

    def coordinator_address(self) -> str:
        """Where clients on this machine ask the coordination service, whether or not it serves."""
        ...
