"""The options of a gateway by name, for those that pass them on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from clickhouse_sim.ingest.gateway.ledger import DedupeIdentityLedger


class FileOptions(TypedDict, total=False):
    """What a configuration file can say; see `DedupeGateway`."""

    preset: str
    sliding_window_seconds: float
    max_sliding_window_seconds: float
    auto_cleanup: bool
    auto_cleanup_interval_seconds: float
    durable_identity_ledger_path: str | Path
    max_durable_identities: int


class Options(FileOptions, total=False):
    """What a program can say."""

    now_provider: Callable[[], float]
    identity_ledger: DedupeIdentityLedger
