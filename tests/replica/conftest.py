"""The small cluster of `tests.replica.cluster`, made and taken down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.replica.cluster import Cluster
from tests.replica.zookeeper_cluster import ZooKeeperCluster


@pytest.fixture
def service() -> str:
    """Where replicas meet: in this process. A module that defines it with `ANYWHERE` as params tries both."""
    return "local"


@pytest.fixture
async def cluster(service: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    if service == "zookeeper":
        root = await ZooKeeperCluster.new_root(request.getfixturevalue("real_zookeeper"))
        made = ZooKeeperCluster(tmp_path, address=root)
    yield made
    await made.close()
