"""For how long identities are remembered: the named presets, and windows of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clickhouse_sim.ingest.gateway.errors import DedupeConfigError

DEFAULT_PRESET = "standard"


@dataclass(frozen=True, slots=True)
class Windows:
    """The window at first, which is also the shortest, and the longest, in seconds."""

    sliding_seconds: float
    max_seconds: float


PRESETS: Mapping[str, Windows] = MappingProxyType(
    {
        "standard": Windows(180, 300),
        "heavy-duplicates": Windows(300, 600),
        "high-latency": Windows(480, 900),
        "cross-node-busy": Windows(240, 480),
    }
)


def chosen_windows(
    preset: str | None, sliding_window_seconds: float | None, max_sliding_window_seconds: float | None
) -> Windows:
    """A preset's windows or those given; the standard ones when nothing is chosen.

    Raises DedupeConfigError for an unknown preset, a preset beside a window, one window without the other, windows
    that are not positive and finite, and a window beyond its maximum.
    """
    if sliding_window_seconds is None and max_sliding_window_seconds is None:
        return _preset(DEFAULT_PRESET if preset is None else preset)
    if preset is not None:
        raise DedupeConfigError(
            "Choose a preset, or sliding_window_seconds and max_sliding_window_seconds, but not both."
        )
    if sliding_window_seconds is None or max_sliding_window_seconds is None:
        raise DedupeConfigError("sliding_window_seconds and max_sliding_window_seconds go together: give both.")
    require_duration("sliding_window_seconds", sliding_window_seconds)
    require_duration("max_sliding_window_seconds", max_sliding_window_seconds)
    if sliding_window_seconds > max_sliding_window_seconds:
        raise DedupeConfigError(
            f"sliding_window_seconds ({sliding_window_seconds}) is more than"
            f" max_sliding_window_seconds ({max_sliding_window_seconds})."
        )
    return Windows(sliding_window_seconds, max_sliding_window_seconds)


def is_duration(value: object) -> bool:
    """Whether a value is a positive, finite number of seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def require_duration(name: str, value: object) -> None:
    """Raises DedupeConfigError for what is no positive, finite number."""
    if not is_duration(value):
        raise DedupeConfigError(f"{name} must be a positive, finite number of seconds, not {value!r}.")


def _preset(name: str) -> Windows:
    if not isinstance(name, str) or name not in PRESETS:
        raise DedupeConfigError(f"There is no preset {name!r}; there are {', '.join(PRESETS)}.")
    return PRESETS[name]
