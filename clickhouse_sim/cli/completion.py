"""What a shell can complete: names of members and tables, found in the cluster's folder and nowhere else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from clickhouse_sim.cluster.folder import ClusterFolder


def complete_member(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the coordinator and the replicas."""
    return _matching(_folder(context).known_members(), incomplete)


def complete_replica(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the replicas."""
    return _matching(_folder(context).known_members()[1:], incomplete)


def complete_table(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the tables that any replica has."""
    return _matching(_folder(context).known_tables(), incomplete)


def _folder(context: click.Context) -> ClusterFolder:
    from pathlib import Path

    from clickhouse_sim.cluster.folder import ClusterFolder

    named = context.params.get("folder")
    return ClusterFolder(Path(named or os.environ.get("CHSIM_DIR", ".chsim")))


def _matching(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
