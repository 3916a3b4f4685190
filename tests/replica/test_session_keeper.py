"""A server without a session says so, and why, as long as that lasts."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.api import CoordinatorUnreachable, Session
from replica import session as session_module
from replica.clock import WallClock
from replica.session import SessionKeeper
from replica.zookeeper_log import ZooKeeperLog


class Unreachable:
    """Fails with what it is told."""

    def __init__(self) -> None:
        self.problem = "nobody is there"
        self.tries = 0

    async def connect(self) -> Session:
        self.tries += 1
        raise CoordinatorUnreachable(self.problem)


async def tries_of(coordinator: Unreachable, count: int) -> None:
    end = coordinator.tries + count
    while coordinator.tries < end:
        await asyncio.sleep(0)


@pytest.mark.parametrize(("again", "least"), [(0.0, 5), (3600.0, 1)])
async def test_why_there_is_no_session_is_logged_again_and_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, again: float, least: int
) -> None:
    monkeypatch.setattr(session_module, "RECONNECT_SECONDS", 0.0)
    monkeypatch.setattr(session_module, "_TELL_AGAIN_SECONDS", again)
    coordinator = Unreachable()
    keeper = SessionKeeper(coordinator, "uuid", ZooKeeperLog(WallClock()))
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(keeper.run())
        await tries_of(coordinator, 6)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) >= least
        assert len(lines) == 1 or again == 0.0
        assert "no session" in lines[0]
        assert "nobody is there" in lines[0]
        coordinator.problem = "somebody else is there"
        await tries_of(coordinator, 2)
        assert "somebody else is there" in caplog.records[-1].getMessage()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def test_ten_seconds_are_the_longest_silence() -> None:
    assert session_module._TELL_AGAIN_SECONDS + session_module.RECONNECT_SECONDS < 10
