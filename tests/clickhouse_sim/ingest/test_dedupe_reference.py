"""The gateway beside recorded histories of the real package: same calls, same answers, same statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clickhouse_sim.ingest.gateway import DedupeGateway

RECORDED = Path(__file__).parents[2] / "data" / "causal-order-dedupe-1.2.1" / "gateway_histories.jsonl"
OPTION = {
    "preset": "preset",
    "slidingWindowSeconds": "sliding_window_seconds",
    "maxSlidingWindowSeconds": "max_sliding_window_seconds",
    "autoCleanup": "auto_cleanup",
    "autoCleanupIntervalSeconds": "auto_cleanup_interval_seconds",
}


@pytest.mark.parametrize("line", RECORDED.read_text().splitlines(), ids=lambda line: json.loads(line)["options"])
def test_the_gateway_answers_as_the_real_one_did(line: str) -> None:
    history = json.loads(line)
    now = [0]
    options: dict[str, Any] = {OPTION[name]: value for name, value in history["options"].items()}
    gateway = DedupeGateway(**options, now_provider=lambda: now[0])
    for number, (now[0], call, *arguments, expected) in enumerate(history["steps"]):
        match call:
            case "cleanup":
                gateway.cleanup()
            case "update_window":
                gateway.update_window(*arguments)
            case _:
                event, reason, source = arguments
                result = gateway.filter_with_result(event)
                assert (result.reason, result.identity_source) == (reason, source), (number, event)
        stats = gateway.get_stats()
        counts = [stats.accepted_events, stats.dropped_duplicates, stats.current_cache_size]
        assert [*counts, stats.active_window_seconds] == expected, number
