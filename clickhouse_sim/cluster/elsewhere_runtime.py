"""Members that others run, known by their addresses only: they can be asked, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import Link, Ready, Settings
from clickhouse_sim.cluster.runtime import Condition, MemberState

_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ElsewhereRuntime:
    """Knows the addresses in the settings. See `Runtime`."""

    settings: Settings

    def prepare(self) -> None:
        self._refuse()

    def start(self, members: Sequence[str]) -> list[Ready]:
        self._refuse()

    def stop(self, members: Sequence[str]) -> list[str]:
        self._refuse()

    def clear(self, *, data: bool) -> None:
        self._refuse()

    def kill(self, member: str) -> int:
        self._refuse()

    def pause(self, member: str) -> int:
        self._refuse()

    def resume(self, member: str) -> int:
        self._refuse()

    def cut(self, links: Sequence[Link]) -> None:
        self._refuse()

    def state(self, member: str) -> MemberState:
        """Whether somebody listens at its address."""
        address = self.settings.endpoints[member]
        condition = Condition.SERVES if _is_listened_to(address) else Condition.STOPPED
        return MemberState(member, condition, pid=None, endpoint=address, interserver="", log="")

    def log(self, member: str, lines: int, follow: bool) -> Iterator[str]:
        self._refuse()

    def coordinator_address(self) -> str:
        return self.settings.zookeeper

    def _refuse(self) -> NoReturn:
        raise ClusterError("the members of this cluster run elsewhere: only those who run them can do that")


def _is_listened_to(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True
