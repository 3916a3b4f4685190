"""Gateways from JSON files: what a file may say, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clickhouse_sim.ingest.gateway import (
    DedupeConfigError,
    DedupeGateway,
    create_dedupe_gateway_from_config_file,
    load_dedupe_gateway_config_file,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dedupe.json"


def create(file: Path, text: str, **overrides: Any) -> DedupeGateway:
    file.write_text(text)
    return create_dedupe_gateway_from_config_file(file, **overrides)


def test_loading_checks_and_makes_no_gateway(file: Path) -> None:
    file.write_text(
        '{"preset": "standard", "autoCleanup": true, "autoCleanupIntervalSeconds": 30,'
        ' "durableIdentityLedgerPath": "state.sqlite", "maxDurableIdentities": 3}'
    )
    assert load_dedupe_gateway_config_file(str(file)) == {
        "preset": "standard",
        "auto_cleanup": True,
        "auto_cleanup_interval_seconds": 30,
        "durable_identity_ledger_path": file.parent / "state.sqlite",
        "max_durable_identities": 3,
    }
    assert not (file.parent / "state.sqlite").exists()


def test_a_preset_from_a_file(file: Path) -> None:
    assert create(file, '{"preset": "high-latency"}').get_stats().active_window_seconds == 480


def test_both_windows_from_a_file(file: Path) -> None:
    gateway = create(file, '{"slidingWindowSeconds": 420, "maxSlidingWindowSeconds": 840}')
    assert gateway.get_stats().active_window_seconds == 420
    gateway.update_window(1000)
    assert gateway.get_stats().active_window_seconds == 840


def test_automatic_cleanup_can_be_switched_off_in_a_file(file: Path) -> None:
    now = [0.0]
    text = '{"slidingWindowSeconds": 1, "maxSlidingWindowSeconds": 1, "autoCleanup": false}'
    gateway = create(file, text, now_provider=lambda: now[0])
    gateway.filter({"id": "a"})
    now[0] = 1e9
    assert not gateway.filter({"id": "a"})


def test_a_ledger_from_a_file_lies_beside_it(file: Path) -> None:
    text = '{"preset": "standard", "durableIdentityLedgerPath": "./ids.sqlite", "maxDurableIdentities": 3}'
    gateway = create(file, text)
    stats = gateway.get_stats().durable_ledger
    assert stats is not None
    assert (stats.database_path, stats.max_identities) == (str(file.parent / "ids.sqlite"), 3)
    gateway.destroy()


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ('{"preset": "standard", "cleanupMode": 1}', 'unknown field "cleanupMode"'),
        ('{"preset": "standard", "nowProvider": 1}', 'unknown field "nowProvider"'),
        ('{"preset": "standard", "sliding_window_seconds": 1}', 'unknown field "sliding_window_seconds"'),
        ('{"preset": "standard", "slidingWindowSeconds": 5}', "not both"),
        ('{"preset": "standard", "slidingWindowSeconds": 5, "maxSlidingWindowSeconds": 9}', "not both"),
        ('{"slidingWindowSeconds": 5}', "both"),
        ('{"maxSlidingWindowSeconds": 5}', "both"),
        ("{}", 'choose "preset", or both'),
        ('{"autoCleanup": true}', 'choose "preset", or both'),
        ('{"slidingWindowSeconds": 5, "maxSlidingWindowSeconds": 4}', "more than"),
        ('{"slidingWindowSeconds": 0, "maxSlidingWindowSeconds": 4}', '"slidingWindowSeconds" must be a positive'),
        ('{"slidingWindowSeconds": "5", "maxSlidingWindowSeconds": 9}', '"slidingWindowSeconds" must be a positive'),
        ('{"slidingWindowSeconds": 5, "maxSlidingWindowSeconds": NaN}', '"maxSlidingWindowSeconds" must be'),
        ('{"slidingWindowSeconds": 5, "maxSlidingWindowSeconds": Infinity}', '"maxSlidingWindowSeconds" must be'),
        ('{"preset": "aggressive"}', "no preset 'aggressive'"),
        ('{"preset": null}', '"preset" must be a string'),
        ('{"preset": "standard", "autoCleanup": 1}', '"autoCleanup" must be true or false'),
        ('{"preset": "standard", "autoCleanup": null}', '"autoCleanup" must be true or false'),
        ('{"preset": "standard", "autoCleanupIntervalSeconds": -1}', '"autoCleanupIntervalSeconds" must be'),
        ('{"preset": "standard", "durableIdentityLedgerPath": "x"}', "give both"),
        ('{"preset": "standard", "maxDurableIdentities": 3}', "give both"),
        ('{"preset": "standard", "durableIdentityLedgerPath": "", "maxDurableIdentities": 3}', "non-empty"),
        ('{"preset": "standard", "durableIdentityLedgerPath": "x", "maxDurableIdentities": 0}', "positive integer"),
        ('{"preset": "standard", "durableIdentityLedgerPath": "x", "maxDurableIdentities": 1.5}', "positive integer"),
        ('{"preset": "standard", "preset": "high-latency"}', '"preset" is there twice'),
        ("[]", "one JSON object"),
        ("null", "one JSON object"),
        ("{bad", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"preset": "\\ud800"}', "no preset"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_file(file: Path, text: str, about: str) -> None:
    with pytest.raises(DedupeConfigError, match=about) as refusal:
        create(file, text)
    assert str(file) in str(refusal.value)
    assert refusal.value.code == "ERR_DEDUPE_CONFIG"


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    with pytest.raises(DedupeConfigError, match=r"Cannot read .*dedupe\.json: No such file"):
        load_dedupe_gateway_config_file(file)
    file.write_bytes(b'{"preset": "\xff"}')
    with pytest.raises(DedupeConfigError, match="no JSON"):
        load_dedupe_gateway_config_file(file)


def test_what_only_a_program_can_say_is_an_override(file: Path) -> None:
    gateway = create(file, '{"preset": "standard"}', now_provider=lambda: 5.0)
    assert gateway.filter({"id": "a"})


def test_overriding_windows_take_the_place_of_a_files_preset(file: Path) -> None:
    overrides = {"sliding_window_seconds": 200, "max_sliding_window_seconds": 250}
    assert create(file, '{"preset": "standard"}', **overrides).get_stats().active_window_seconds == 200


def test_an_overriding_preset_takes_the_place_of_a_files_windows(file: Path) -> None:
    text = '{"slidingWindowSeconds": 5, "maxSlidingWindowSeconds": 9}'
    assert create(file, text, preset="high-latency").get_stats().active_window_seconds == 480


def test_one_overriding_window_keeps_the_files_other_one(file: Path) -> None:
    text = '{"slidingWindowSeconds": 5, "maxSlidingWindowSeconds": 9}'
    assert create(file, text, sliding_window_seconds=7).get_stats().active_window_seconds == 7


def test_a_callers_ledger_takes_the_place_of_a_files(file: Path) -> None:
    class Ledger:
        def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
            return identity_key != "known"

    text = '{"preset": "standard", "durableIdentityLedgerPath": "ids.sqlite", "maxDurableIdentities": 3}'
    gateway = create(file, text, identity_ledger=Ledger())
    assert [gateway.filter({"id": each}) for each in ("new", "known")] == [True, False]
    assert not (file.parent / "ids.sqlite").exists()


def test_overrides_are_checked_like_options(file: Path) -> None:
    with pytest.raises(DedupeConfigError, match="auto_cleanup_interval_seconds"):
        create(file, '{"preset": "standard"}', auto_cleanup_interval_seconds=0)
