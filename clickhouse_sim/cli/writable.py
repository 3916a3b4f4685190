"""What a read-only replica waits for: after `chsim start`, and under an INSERT that is not answered or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clickhouse_sim.cli.ask import system_rows
from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cluster import zookeeper
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from replica.errors import Aborted, ClickHouseError, KeeperException, TableIsReadOnly, UnknownStatusOfInsert

_POLL_SECONDS = 0.1
_SLACK_SECONDS = 15.0
"""On top of the session timeout: a replica that found its place taken looks again only every ten seconds."""

_FOR_WANT_OF_A_SESSION = (Aborted, KeeperException, TableIsReadOnly, UnknownStatusOfInsert)
_QUIET_SECONDS = 3.0
_LOOK_AGAIN_SECONDS = 2.0
_ANSWER_SECONDS = 2.0


def wait_until_writable(cluster: Cluster, member: str) -> None:
    """Return when every table of a member that has just started can be written; tell what it waits for.

    Raises ClusterError when that is not so within the session timeout and a little more.
    """
    if member not in cluster.folder.settings().replica_names:
        return
    seconds = cluster.folder.settings().session_timeout + _SLACK_SECONDS
    deadline = time.monotonic() + seconds
    told = ""
    while reasons := _reasons(cluster.chosen_replica(member)[1]):
        if time.monotonic() > deadline:
            raise ClusterError(f"{member} serves, but after {seconds:g} s it is still read-only: {reasons}")
        if reasons != told and not _is_starting(reasons):
            narrate(f"Waiting until {member} can be written (at most {seconds:g} s): {reasons}")
            told = reasons
        time.sleep(_POLL_SECONDS)
    if told:
        narrate(f"{member} can be written.")


@contextmanager
def told_why_it_waits(cluster: Cluster, replica: str, address: str) -> Iterator[None]:
    """While the block waits for an INSERT, say on stderr what it waits for, once that has lasted three seconds."""
    answered = threading.Event()

    def look() -> None:
        told = ""
        wait = _QUIET_SECONDS
        while not answered.wait(wait):
            why = _why_it_waits(cluster, replica, address)
            if why and why != told and not answered.is_set():
                narrate(why)
                told = why
            wait = _LOOK_AGAIN_SECONDS

    watcher = threading.Thread(target=look, daemon=True, name="why it waits")
    watcher.start()
    try:
        yield
    finally:
        answered.set()
        watcher.join(2 * _ANSWER_SECONDS)


@contextmanager
def blaming_the_coordinator(cluster: Cluster) -> Iterator[None]:
    """Raises ClusterUnreachable instead of what failed in the block for want of a coordination service."""
    try:
        yield
    except _FOR_WANT_OF_A_SESSION as error:
        try:
            address = cluster.coordinator_address()
        except ClusterUnreachable as problem:
            raise ClusterUnreachable(f"{error.message} ({error.name}). What is missing: {problem}") from None
        if not zookeeper.serves(address):
            raise ClusterUnreachable(
                f"{error.message} ({error.name}). The coordination service at {address} does not answer"
            ) from None
        raise


def _why_it_waits(cluster: Cluster, replica: str, address: str) -> str:
    """A sentence; "" when nothing is known to be in the way."""
    try:
        reasons = _reasons(address, _ANSWER_SECONDS)
    except ClickHouseError:
        return f"Still waiting: {replica} does not answer."
    if not reasons:
        return ""
    coordinator = _of_the_coordinator(cluster)
    return f"Still waiting: {replica} is read-only, and tries again for a while ({reasons}).{coordinator}"


def _of_the_coordinator(cluster: Cluster) -> str:
    try:
        cluster.coordinator_address()
    except ClusterUnreachable as problem:
        return f" {str(problem)[0].upper()}{str(problem)[1:]}."
    return ""


def _reasons(address: str, seconds: float = _SLACK_SECONDS) -> str:
    """Which tables are read-only and why; "" when none is."""
    tables = system_rows(address, "replicas", seconds)
    return "; ".join(_reason(table) for table in tables if table["is_readonly"])


def _reason(table: dict[str, Any]) -> str:
    why = table["zookeeper_exception"] or "no reason is told"
    if "already active" in why:
        why = "the session of its earlier life has not expired yet (or another server runs under its name)"
    return f"{table['database']}.{table['table']}: {why}"


def _is_starting(reasons: str) -> bool:
    """Whether it has not yet had the time to find out more."""
    return all(reason.endswith("it is starting") for reason in reasons.split("; "))
