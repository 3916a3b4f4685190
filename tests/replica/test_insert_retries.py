"""How long an insert waits between its tries, and when it gives up."""

from __future__ import annotations

import pytest

from replica.insert import retries
from replica.insert.retries import KeeperRetries
from replica.settings import ServerSettings


async def waits_of(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retries.asyncio, "sleep", sleep)
    budget = KeeperRetries(settings)
    for _ in range(1000):
        if not await budget.wait():
            break
    return waits


async def test_each_wait_is_twice_the_one_before_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = await waits_of(ServerSettings(), monkeypatch)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4] + [10.0] * 13


@pytest.mark.parametrize("retry_count", [0, 1, 5])
async def test_there_are_as_many_retries_as_allowed(retry_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = await waits_of(ServerSettings(insert_keeper_max_retries=retry_count), monkeypatch)
    assert len(waits) == retry_count
