"""The small cluster of `tests.replica.cluster`, made and taken down."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.local_client import LocalService
from tests.replica.cluster import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path, LocalService(time.time, tick_seconds=0.5))
    yield made
    for name in sorted(made.replicas):
        await made.stop(name)
