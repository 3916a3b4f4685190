"""The gateway, claim by claim of the document that describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from clickhouse_sim.ingest.gateway import (
    DedupeConfigError,
    DedupeFilterResult,
    DedupeGateway,
    DedupeGatewayDestroyedError,
    DedupeGatewayStats,
    DedupeIdentityLedgerStats,
    FilterReason,
    IdentitySource,
)


@dataclass
class Clock:
    """In milliseconds, moved in seconds."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return round(self.seconds * 1000)


@dataclass
class Ledger:
    """A caller's ledger that writes down what it is asked."""

    answers: Callable[[str], bool] = lambda _: True
    claims: list[tuple[str, int]] = field(default_factory=list)
    closed: int = 0

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        self.claims.append((identity_key, accepted_at_ms))
        return self.answers(identity_key)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ten_seconds(clock: Clock, **options: Any) -> DedupeGateway:
    """A window of 10 s, at most 20 s, cleaned up every 5 s."""
    chosen: dict[str, Any] = {
        "sliding_window_seconds": 10,
        "max_sliding_window_seconds": 20,
        "auto_cleanup_interval_seconds": 5,
        "now_provider": clock,
        **options,
    }
    return DedupeGateway(**chosen)


# --- decisions ----------------------------------------------------------------------------------------------------


def test_filter_is_true_for_what_continues_and_false_for_what_is_remembered(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"id": "a"}) is True
    assert gateway.filter({"id": "a"}) is False
    assert gateway.filter({"id": "b"}) is True


def test_filter_with_result_says_accepted_duplicate_or_accepted_without_identity(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter_with_result({"id": "a"}) == DedupeFilterResult(
        True, FilterReason.ACCEPTED, IdentitySource.ID
    )
    assert gateway.filter_with_result({"id": "a"}) == DedupeFilterResult(
        False, FilterReason.DUPLICATE, IdentitySource.ID
    )
    assert gateway.filter_with_result({}) == DedupeFilterResult(
        True, FilterReason.ACCEPTED_WITHOUT_IDENTITY, IdentitySource.NONE
    )
    assert [reason.value for reason in FilterReason] == ["accepted", "duplicate", "accepted_without_identity"]
    assert [source.value for source in IdentitySource] == ["id", "node_sequence", "none"]


def test_each_call_of_either_method_is_one_operation(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"id": "a"})
    assert not gateway.filter_with_result({"id": "a"}).accepted
    assert gateway.get_stats().accepted_events == 1
    assert gateway.get_stats().dropped_duplicates == 1


def test_the_result_exposes_neither_identity_nor_payload(clock: Clock) -> None:
    result = ten_seconds(clock).filter_with_result({"id": "secret-id", "payload": "secret-payload"})
    assert set(asdict(result)) == {"accepted", "reason", "identity_source"}
    assert "secret" not in repr(result)


def test_identities_are_compared_and_payloads_are_not(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"id": "a", "payload": 1})
    assert not gateway.filter({"id": "a", "payload": 2})
    assert gateway.filter({"id": "b", "payload": 1})


def test_the_filtered_event_is_left_as_it_was(clock: Clock) -> None:
    event = {"id": "a", "nodeId": "n", "sequence": 1}
    ten_seconds(clock).filter(event)
    assert event == {"id": "a", "nodeId": "n", "sequence": 1}


# --- identity -----------------------------------------------------------------------------------------------------

ID, NODE_SEQUENCE, NONE = IdentitySource


@pytest.mark.parametrize(
    ("event", "source"),
    [
        ({"id": "a", "nodeId": "n", "sequence": 1}, ID),
        ({"id": " "}, ID),
        ({"id": "", "nodeId": "n", "sequence": 1}, NODE_SEQUENCE),
        ({"id": None, "nodeId": "n", "sequence": 1}, NODE_SEQUENCE),
        ({"id": 7, "nodeId": "n", "sequence": 1}, NODE_SEQUENCE),
        ({"id": ["a"], "nodeId": "n", "sequence": 1}, NODE_SEQUENCE),
        ({"node_id": "n", "sequence": 1}, NODE_SEQUENCE),
        ({"nodeId": "n", "sequence": 0}, NODE_SEQUENCE),
        ({"nodeId": 0, "sequence": 0}, NODE_SEQUENCE),
        ({"nodeId": "n", "sequence": "x"}, NODE_SEQUENCE),
        ({"nodeId": "n", "sequence": 1.5}, NODE_SEQUENCE),
        ({"nodeId": "n"}, NONE),
        ({"sequence": 1}, NONE),
        ({"nodeId": "", "sequence": 1}, NONE),
        ({"nodeId": "n", "sequence": ""}, NONE),
        ({"nodeId": "n", "sequence": None}, NONE),
        ({"nodeId": None, "sequence": 1}, NONE),
        ({"nodeId": "n", "sequence": True}, NONE),
        ({"nodeId": "n", "sequence": {}}, NONE),
        ({"nodeId": "n", "sequence": float("nan")}, NONE),
        ({"id": ""}, NONE),
        ({"id": 7}, NONE),
        ({}, NONE),
        (None, NONE),
    ],
)
def test_identity_precedence(clock: Clock, event: dict[str, object] | None, source: IdentitySource) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter_with_result(event).identity_source is source
    assert gateway.filter_with_result(event).accepted is (source is NONE)


def test_node_and_sequence_are_joined_by_two_colons(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"id": "n::9"})
    result = gateway.filter_with_result({"nodeId": "n", "sequence": 9})
    assert (result.accepted, result.identity_source) == (False, NODE_SEQUENCE)


def test_another_node_or_another_sequence_is_another_identity(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    events = [{"nodeId": node, "sequence": sequence} for node in ("n", "m") for sequence in (1, 2)]
    assert all(gateway.filter(event) for event in events)


def test_one_sequence_in_all_its_spellings_is_one_identity(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert [gateway.filter({"nodeId": "n", "sequence": each}) for each in (9, "9", 9.0, -0.0, 0)] == [
        *(True, False, False),
        *(True, False),
    ]


def test_sequences_beyond_the_precision_of_a_float_stay_apart(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"nodeId": "n", "sequence": 2**53})
    assert gateway.filter({"nodeId": "n", "sequence": 2**53 + 1})


def test_without_an_identity_an_event_is_accepted_and_not_remembered(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    assert gateway.filter({"payload": 1})
    assert gateway.filter({"payload": 1})
    assert gateway.get_stats() == DedupeGatewayStats(2, 0, 0, 10)


# --- windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "window", "longest"),
    [
        ("standard", 180, 300),
        ("heavy-duplicates", 300, 600),
        ("high-latency", 480, 900),
        ("cross-node-busy", 240, 480),
    ],
)
def test_presets_and_their_windows(clock: Clock, preset: str, window: float, longest: float) -> None:
    gateway = DedupeGateway(preset, now_provider=clock, auto_cleanup=False)
    assert gateway.get_stats().active_window_seconds == window
    assert _is_held_for(gateway, clock, window)
    gateway.update_window(10_000)
    assert gateway.get_stats().active_window_seconds == longest
    assert _is_held_for(gateway, clock, longest)


def _is_held_for(gateway: DedupeGateway, clock: Clock, seconds: float) -> bool:
    """Whether the configured window is the real one, to a millisecond."""
    gateway.filter({"id": f"at {clock.seconds}"})
    clock.seconds += seconds
    gateway.cleanup()
    held = gateway.get_stats().current_cache_size == 1
    clock.seconds += 0.001
    gateway.cleanup()
    return held and gateway.get_stats().current_cache_size == 0


def test_the_default_preset_is_standard() -> None:
    gateway = DedupeGateway()
    assert gateway.get_stats() == DedupeGatewayStats(0, 0, 0, 180)
    gateway.update_window(10_000)
    assert gateway.get_stats().active_window_seconds == 300


def test_manual_windows_are_kept_to_the_millisecond(clock: Clock) -> None:
    gateway = DedupeGateway(
        sliding_window_seconds=1.005, max_sliding_window_seconds=8.7, now_provider=clock, auto_cleanup=False
    )
    assert _is_held_for(gateway, clock, 1.005)


def test_a_window_may_be_its_own_maximum(clock: Clock) -> None:
    gateway = ten_seconds(clock, sliding_window_seconds=20)
    gateway.update_window(5)
    gateway.update_window(50)
    assert gateway.get_stats().active_window_seconds == 20


NOT_DURATIONS = [0, -1, 0.0, float("nan"), float("inf"), float("-inf"), "15", None, True, [15]]


@pytest.mark.parametrize("wrong", [each for each in NOT_DURATIONS if each is not None])
@pytest.mark.parametrize(
    "option", ["sliding_window_seconds", "max_sliding_window_seconds", "auto_cleanup_interval_seconds"]
)
def test_durations_must_be_positive_and_finite(clock: Clock, option: str, wrong: object) -> None:
    with pytest.raises(DedupeConfigError, match=option):
        ten_seconds(clock, **{option: wrong})


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"sliding_window_seconds": 5}, "both"),
        ({"max_sliding_window_seconds": 5}, "both"),
        ({"sliding_window_seconds": 5, "max_sliding_window_seconds": 4}, "more than"),
        ({"preset": "aggressive"}, "no preset 'aggressive'; there are standard, heavy-duplicates"),
        ({"preset": ""}, "no preset"),
        ({"preset": ["standard"]}, "no preset"),
        ({"preset": "standard", "sliding_window_seconds": 5, "max_sliding_window_seconds": 9}, "not both"),
        ({"auto_cleanup": 1}, "auto_cleanup is True or False"),
        ({"durable_identity_ledger_path": "x"}, "both"),
        ({"max_durable_identities": 5}, "both"),
        ({"durable_identity_ledger_path": "x", "max_durable_identities": 5, "identity_ledger": Ledger()}, "not both"),
        ({"identity_ledger": Ledger(), "max_durable_identities": 5}, "both"),
        ({"identity_ledger": object()}, "claim"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], about: str) -> None:
    with pytest.raises(DedupeConfigError, match=about):
        DedupeGateway(**options)


# --- expiry -------------------------------------------------------------------------------------------------------


def test_expiry_is_driven_by_cleanup_and_there_is_none_without(clock: Clock) -> None:
    gateway = ten_seconds(clock, auto_cleanup=False)
    gateway.filter({"id": "a"})
    clock.seconds = 1_000_000
    assert not gateway.filter({"id": "a"})
    gateway.cleanup()
    assert gateway.filter({"id": "a"})


def test_a_repeat_does_not_make_an_identity_younger(clock: Clock) -> None:
    gateway = ten_seconds(clock, auto_cleanup=False)
    gateway.filter({"id": "a"})
    clock.seconds = 8
    assert not gateway.filter({"id": "a"})
    clock.seconds = 10.001
    gateway.cleanup()
    assert gateway.filter({"id": "a"})


def test_automatic_cleanup_runs_while_filtering_once_an_interval(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    gateway.filter({"id": "a"})
    for at, size in ((5, 2), (9.9, 3), (10, 4), (14.999, 4), (15, 4), (20, 3)):
        clock.seconds = at
        gateway.filter({"id": f"at {at}"} if at not in (14.999, 15) else {"id": "a"})
        assert gateway.get_stats().current_cache_size == size, at


def test_automatic_cleanup_can_keep_an_identity_for_up_to_an_interval_longer(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    gateway.filter({"id": "first"})
    clock.seconds = 4.999
    gateway.filter({"id": "late"})
    for at, accepted in ((10, None), (14.999, None), (15, True)):
        clock.seconds = at
        if accepted is None:
            assert not gateway.filter({"id": "late"})
        else:
            assert gateway.filter({"id": "late"})


def test_the_interval_is_thirty_seconds_unless_said_otherwise(clock: Clock) -> None:
    gateway = DedupeGateway(sliding_window_seconds=1, max_sliding_window_seconds=1, now_provider=clock)
    gateway.filter({"id": "a"})
    clock.seconds = 29.999
    assert not gateway.filter({"id": "a"})
    clock.seconds = 30
    assert gateway.filter({"id": "a"})


def test_a_manual_cleanup_does_not_move_the_cadence(clock: Clock) -> None:
    gateway = ten_seconds(clock, sliding_window_seconds=1)
    gateway.filter({"id": "a"})
    clock.seconds = 3
    gateway.filter({"id": "b"})
    clock.seconds = 3.5
    gateway.cleanup()
    clock.seconds = 5
    assert gateway.filter({"id": "b"})


def test_a_clock_set_back_neither_forgets_nor_stops_the_cleanup(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    clock.seconds = 1000
    gateway.filter({"id": "before"})
    clock.seconds = 500
    assert not gateway.filter({"id": "before"})
    assert gateway.filter({"id": "after"})
    clock.seconds = 515
    assert gateway.filter({"id": "after"})
    assert not gateway.filter({"id": "before"})
    clock.seconds = 1015
    assert gateway.filter({"id": "before"})


def test_expired_identities_are_found_also_out_of_order(clock: Clock) -> None:
    gateway = ten_seconds(clock, auto_cleanup=False)
    for at in (100, 50, 70, 60):
        clock.seconds = at
        gateway.filter({"id": f"at {at}"})
    for at, size in ((60.5, 3), (71, 2), (81, 1), (110, 1), (111, 0)):
        clock.seconds = at
        gateway.cleanup()
        assert gateway.get_stats().current_cache_size == size, at


# --- update_window ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "given"), [(15, 15), (12.5, 12.5), (20, 20), (25, 20), (10, 10), (5, 10)])
def test_update_window_stays_within_its_bounds(clock: Clock, asked: float, given: float) -> None:
    gateway = ten_seconds(clock)
    gateway.update_window(asked)
    assert gateway.get_stats().active_window_seconds == given


@pytest.mark.parametrize("invalid", NOT_DURATIONS)
def test_update_window_ignores_what_is_invalid(clock: Clock, invalid: Any) -> None:
    gateway = ten_seconds(clock)
    gateway.update_window(12)
    gateway.update_window(invalid)
    assert gateway.get_stats().active_window_seconds == 12


def test_a_changed_window_counts_for_what_is_remembered_already(clock: Clock) -> None:
    gateway = ten_seconds(clock, auto_cleanup=False)
    gateway.update_window(20)
    gateway.filter({"id": "a"})
    clock.seconds = 15
    gateway.cleanup()
    assert not gateway.filter({"id": "a"})
    gateway.update_window(10)
    gateway.cleanup()
    assert gateway.filter({"id": "a"})


# --- statistics, and the end --------------------------------------------------------------------------------------


def test_get_stats_counts_and_shows_the_state(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    for event in ({"id": "a"}, {"id": "a"}, {"id": "b"}, {}):
        gateway.filter(event)
    assert gateway.get_stats() == DedupeGatewayStats(
        accepted_events=3, dropped_duplicates=1, current_cache_size=2, active_window_seconds=10, durable_ledger=None
    )
    clock.seconds = 11
    gateway.cleanup()
    assert gateway.get_stats() == DedupeGatewayStats(3, 1, 0, 10)


def test_destroy_clears_identities_and_statistics(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    gateway.filter({"id": "a"})
    gateway.filter({"id": "a"})
    gateway.destroy()
    assert gateway.get_stats() == DedupeGatewayStats(0, 0, 0, 10)


def test_a_destroyed_gateway_decides_nothing_and_may_be_destroyed_again(clock: Clock) -> None:
    gateway = ten_seconds(clock)
    gateway.destroy()
    gateway.destroy()
    gateway.cleanup()
    for event in ({"id": "a"}, {}):
        with pytest.raises(DedupeGatewayDestroyedError) as refusal:
            gateway.filter(event)
        assert refusal.value.code == "ERR_DEDUPE_GATEWAY_DESTROYED"


def test_without_a_ledger_a_fresh_gateway_can_accept_a_prior_identity(clock: Clock) -> None:
    assert ten_seconds(clock).filter({"id": "a"})
    assert ten_seconds(clock).filter({"id": "a"})


def test_the_clock_of_its_own_shows_the_milliseconds_since_1970() -> None:
    ledger = Ledger()
    DedupeGateway(identity_ledger=ledger).filter({"id": "a"})
    ((_, at),) = ledger.claims
    assert 1_700_000_000_000 < at < 10_000_000_000_000


# --- a caller's ledger --------------------------------------------------------------------------------------------


def test_a_callers_ledger_is_asked_once_for_what_is_not_remembered(clock: Clock) -> None:
    ledger = Ledger()
    gateway = ten_seconds(clock, identity_ledger=ledger)
    clock.seconds = 3
    for event in ({"id": "a"}, {"id": "a"}, {"nodeId": "n", "sequence": 1}, {}):
        gateway.filter(event)
    assert ledger.claims == [("a", 3000), ("n::1", 3000)]


def test_what_the_ledger_knows_is_a_duplicate(clock: Clock) -> None:
    gateway = ten_seconds(clock, identity_ledger=Ledger(answers=lambda _: False))
    assert gateway.filter_with_result({"id": "a"}).reason is FilterReason.DUPLICATE
    assert gateway.get_stats() == DedupeGatewayStats(0, 1, 0, 10)


def test_when_the_ledger_fails_nothing_is_remembered_or_counted(clock: Clock) -> None:
    def refuse(_: str) -> bool:
        raise RuntimeError("disk")

    ledger = Ledger(answers=refuse)
    gateway = ten_seconds(clock, identity_ledger=ledger)
    with pytest.raises(RuntimeError, match="disk"):
        gateway.filter({"id": "a"})
    assert gateway.get_stats() == DedupeGatewayStats(0, 0, 0, 10)
    ledger.answers = lambda _: True
    assert gateway.filter({"id": "a"})


def test_destroy_leaves_a_callers_ledger_open(clock: Clock) -> None:
    ledger = Ledger()
    ten_seconds(clock, identity_ledger=ledger).destroy()
    assert ledger.closed == 0


def test_a_callers_ledger_that_counts_is_in_the_statistics(clock: Clock) -> None:
    class Counting(Ledger):
        def __len__(self) -> int:
            return 0  # an empty ledger is a ledger

        def get_stats(self) -> DedupeIdentityLedgerStats:
            return DedupeIdentityLedgerStats(len(self.claims), 9, "elsewhere")

    gateway = ten_seconds(clock, identity_ledger=Counting())
    gateway.filter({"id": "a"})
    assert gateway.get_stats().durable_ledger == DedupeIdentityLedgerStats(1, 9, "elsewhere")
