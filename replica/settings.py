"""Settings under ClickHouse's names and, unless `docs/differences.md` says otherwise, with its defaults.

Only settings that change what this model does are known; any other name is refused with the nearest one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from replica.dedup.hashes import DeduplicationVersion
from replica.errors import BadArguments, UnknownSetting
from replica.log_entry import NEWEST_FORMAT_VERSION, USUAL_FORMAT_VERSION

_LARGEST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting of a table. `type` is ClickHouse's; `tier` says how far it is to be trusted."""

    name: str
    default: int | float | DeduplicationVersion
    description: str
    type: str
    least: int
    most: int
    readonly: bool
    tier: str

    def value_of(self, text: str) -> int | float | DeduplicationVersion:
        """Raises BadArguments for text that is no number within the setting's limits, or none of its names."""
        if isinstance(self.default, DeduplicationVersion):
            if text not in list(DeduplicationVersion):
                raise BadArguments(f"Setting {self.name} is one of {', '.join(DeduplicationVersion)}, not {text!r}")
            return DeduplicationVersion(text)
        if isinstance(self.default, float):
            if not _RATIO.fullmatch(text):
                raise BadArguments(f"Setting {self.name} takes a number like 0.5, not {text!r}")
            return float(text)
        text = _BOOLEANS.get(text.lower(), text) if self.type == "Bool" else text
        if not (text.isascii() and text.isdigit()):
            raise BadArguments(f"Setting {self.name} takes a whole number, not {text!r}")
        value = int(text)
        if value < self.least:
            raise BadArguments(f"Setting {self.name} must be at least {self.least}")
        if value > self.most:
            raise BadArguments(f"Setting {self.name} must be at most {self.most}")
        return value


_RATIO = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_BOOLEANS = {"false": "0", "true": "1"}


def _setting(
    default: int,
    description: str,
    *,
    type: str = "UInt64",
    least: int = 0,
    most: int = _LARGEST,
    readonly: bool = False,
    tier: str = "Production",
) -> int:
    about = {"default": default, "description": description, "type": type, "least": least, "most": most}
    return field(default=default, metadata={**about, "readonly": readonly, "tier": tier})


def _ratio(default: float, description: str) -> float:
    about = {"default": default, "description": description, "type": "Float", "least": 0, "most": _LARGEST}
    return field(default=default, metadata={**about, "readonly": False, "tier": "Production"})


def _switch(default: int, description: str) -> int:
    return _setting(default, description, type="Bool", most=1)


@dataclass(frozen=True, slots=True)
class MergeTreeSettings:
    """Settings of one table (`SETTINGS` of CREATE TABLE; ClickHouse: MergeTreeSettings.cpp). Whole numbers, but the
    ratio and `insert_deduplication_version`, which is a setting of the server there."""

    index_granularity: int = _setting(
        8192, "stands in the `metadata` znode, where replicas must agree on it", least=1, readonly=True
    )
    fsync_after_insert: int = _switch(1, "parts are durable before they count")
    replicated_deduplication_window: int = _setting(10000, "so many block ids are kept; 0: no deduplication")
    replicated_deduplication_window_seconds: int = _setting(
        3600, "and no block id that is so much older than the newest"
    )
    non_replicated_deduplication_window: int = _setting(
        0, "so many block ids are kept by a MergeTree table, in its own log; 0: no deduplication there"
    )
    replicated_deduplication_window_for_async_inserts: int = _setting(
        10000, "so many ids stay in `async_blocks`, which only older versions of deduplication write"
    )
    replicated_deduplication_window_seconds_for_async_inserts: int = _setting(
        604_800, "and no id that is so much older than the newest there"
    )
    insert_deduplication_version: DeduplicationVersion = field(
        default=DeduplicationVersion.NEW_UNIFIED_HASH,
        metadata={
            "default": DeduplicationVersion.NEW_UNIFIED_HASH,
            "description": "which ids are checked and written: `old_separate_hashes` those in `blocks` and "
            "`async_blocks`, `new_unified_hash` those in `deduplication_hashes`, `compatible_double_hashes` both",
            "type": "InsertDeduplicationVersions",
            "least": 0,
            "most": 0,
            "readonly": False,
            "tier": "Production",
        },
    )
    max_replicated_logs_to_keep: int = _setting(
        1000, "an inactive replica that is further behind is marked lost", type="NonZeroUInt64", least=1
    )
    min_replicated_logs_to_keep: int = _setting(10, "so many log entries stay in any case")
    old_parts_lifetime: int = _setting(
        480, "seconds after which a part that another covers is deleted", type="Seconds"
    )
    cleanup_delay_period: int = _setting(30, "seconds between cleanups, at least")
    max_cleanup_delay_period: int = _setting(300, "seconds between cleanups, at most")
    cleanup_delay_period_random_add: int = _setting(10, "up to so many more seconds between cleanups, drawn")
    cleanup_thread_preferred_points_per_iteration: int = _setting(
        150, "how much a cleanup should find to do; the delay follows it"
    )
    always_fetch_merged_part: int = _switch(0, "1: never merge, fetch what others merged")
    prefer_fetch_merged_part_time_threshold: int = _setting(
        3600,
        "merges older than so many seconds, and as large as the next setting says, are fetched from others",
        type="Seconds",
    )
    prefer_fetch_merged_part_size_threshold: int = _setting(
        10 << 30, "merges of at least so many bytes, and as old as the setting before says, are fetched"
    )
    max_replicated_merges_in_queue: int = _setting(1000, "with so many in its queue a replica assigns no more")
    merge_selecting_sleep_ms: int = _setting(5000, "between looks for a merge, at least; new parts wake it")
    max_merge_selecting_sleep_ms: int = _setting(60_000, "between looks for a merge, at most")
    max_postpone_time_for_failed_replicated_fetches_ms: int = _setting(
        60_000, "the longest wait before a failed fetch is tried again"
    )
    max_postpone_time_for_failed_replicated_merges_ms: int = _setting(
        60_000, "the longest wait before a failed merge is tried again"
    )
    max_postpone_time_for_failed_replicated_tasks_ms: int = _setting(
        300_000, "the longest wait before any other failed entry is tried again"
    )
    max_postpone_time_for_failed_mutations_ms: int = _setting(
        300_000, "the same for mutations, which always fail: they are not in the model yet"
    )
    max_parts_to_merge_at_once: int = _setting(100, "sources of one merge, at most")
    min_parts_to_merge_at_once: int = _setting(0, "sources of one merge, at least")
    min_age_to_force_merge_seconds: int = _setting(0, "parts of that age merge whatever their sizes")
    merge_selector_base: int = _setting(5, "how balanced a merge must be", type="Float")
    merge_selector_window_size: int = _setting(1000, "only so many last parts of a partition are looked at")
    merge_selector_enable_heuristic_to_remove_small_parts_at_right: int = _switch(
        1, "a tiny last part waits for the next merge"
    )
    merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once: int = _switch(
        1, "the more parts, the smaller the merges"
    )
    merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent: int = _setting(
        5, "how fast merges get smaller with the number of parts", tier="Experimental"
    )
    parts_to_throw_insert: int = _setting(3000, "with so many active parts in a partition no INSERT begins")
    allow_nullable_key: int = _switch(0, "1: keys may be Nullable")
    allow_floating_point_partition_key: int = _switch(0, "1: PARTITION BY may be a float")
    number_of_free_entries_in_pool_to_lower_max_size_of_merge: int = _setting(
        8, "with fewer free slots in the pool, only smaller merges"
    )
    max_bytes_to_merge_at_max_space_in_pool: int = _setting(
        150 << 30, "the largest merge while the pool has free slots"
    )
    max_bytes_to_merge_at_min_space_in_pool: int = _setting(1 << 20, "the largest merge when it has none")
    replicated_max_ratio_of_wrong_parts: float = _ratio(
        0.5, "with a larger share of its rows in parts that are not registered, a table does not start"
    )
    detach_old_local_parts_when_cloning_replica: int = _switch(
        1, "what a lost replica has and its source has not goes to `detached/`; 0: it is deleted"
    )
    number_of_free_entries_in_pool_to_execute_mutation: int = _setting(
        20, "for mutations, which are not in the model yet"
    )
    max_number_of_mutations_for_replica: int = _setting(0, "for mutations, which are not in the model yet")
    max_log_entry_format_version: int = _setting(
        NEWEST_FORMAT_VERSION,
        "ours: from 4 to 7; the replica writes no log entry of a newer format and stops copying the log before one, "
        "as a server of an older release would",
        least=USUAL_FORMAT_VERSION,
        most=NEWEST_FORMAT_VERSION,
    )

    @staticmethod
    def from_text(texts: Mapping[str, str]) -> MergeTreeSettings:
        """Raises UnknownSetting for a name, BadArguments for a value that does not fit it or another setting."""
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in SETTINGS:
                raise UnknownSetting(f"Unknown table setting {name}: {nearest(name)}")
            values[name] = SETTINGS[name].value_of(text)
        settings = MergeTreeSettings(**values)
        for lower, upper in _NOT_ABOVE:
            if getattr(settings, lower) > getattr(settings, upper):
                raise BadArguments(
                    f"Setting {lower} ({getattr(settings, lower)}) must not be greater than "
                    f"{upper} ({getattr(settings, upper)})"
                )
        return settings


# As MergeTreeSettings::sanityCheck has it.
_NOT_ABOVE = (
    ("cleanup_delay_period", "max_cleanup_delay_period"),
    ("merge_selecting_sleep_ms", "max_merge_selecting_sleep_ms"),
)

SETTINGS: Mapping[str, Setting] = {
    each.name: Setting(each.name, **each.metadata) for each in fields(MergeTreeSettings)
}
"""The settings of a table by name, in order."""


def nearest(name: str) -> str:
    """What to say of a name that is no setting."""
    near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.0)
    return f"the nearest that this model knows is {near[0]} (docs/settings.md)"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one server (ClickHouse: ServerSettings.cpp and the insert settings of Settings.cpp)."""

    background_fetches_pool_size: int = 16
    background_pool_size: int = 16
    background_merges_mutations_concurrency_ratio: float = 2.0
    background_common_pool_size: int = 8
    insert_keeper_max_retries: int = 20
    insert_keeper_retry_initial_backoff_ms: int = 100
    insert_keeper_retry_max_backoff_ms: int = 10_000
    replicated_fetches_timeout_seconds: float = 60.0
    lock_acquire_timeout: float = 120.0  # seconds that DROP PARTITION waits for a block number of another kind
    replication_wait_for_inactive_replica_timeout: float = 120.0  # seconds, with alter_sync = 2
    receive_timeout: float = 300.0  # seconds that SYSTEM SYNC REPLICA waits

    @property
    def merges_mutations_at_once(self) -> int:
        """The slots for merges and mutations: at least one."""
        return max(1, int(self.background_pool_size * self.background_merges_mutations_concurrency_ratio))

    @staticmethod
    def from_text(texts: Mapping[str, str]) -> ServerSettings:
        """Raises UnknownSetting for a name, BadArguments for a value that is no number or, but for retries, is 0."""
        known = {field.name: field.default for field in fields(ServerSettings)}
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
                raise UnknownSetting(
                    f"Unknown server setting {name}: the nearest that this model knows is {near[0]} "
                    "(docs/server-settings.md)"
                )
            whole = isinstance(known[name], int)
            value = _whole_number(name, text) if whole else _number(name, text)
            if not value and name != "insert_keeper_max_retries":
                raise BadArguments(f"Setting {name} must be above 0")
            values[name] = value
        return ServerSettings(**values)


def _whole_number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise BadArguments(f"Setting {name} takes a whole number, not {text!r}")
    return int(text)


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise BadArguments(f"Setting {name} takes a number, as 1.5, not {text!r}")
    return float(text)
