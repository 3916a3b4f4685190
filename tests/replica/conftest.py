"""The small cluster of `tests.replica.cluster`, made and taken down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.replica.cluster import Cluster, InProcessService, Service, ZooKeeperService


@pytest.fixture(params=["local", pytest.param("zookeeper", marks=pytest.mark.real)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    service: Service = InProcessService()
    if request.param == "zookeeper":
        service = await ZooKeeperService.below_a_new_root(request.getfixturevalue("real_zookeeper"))
    made = Cluster(tmp_path, service)
    yield made
    await made.close()
