"""Settings under ClickHouse's names and, unless `docs/differences.md` says otherwise, with its defaults.

Only settings that change what this model does are known; any other name is refused with the nearest one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from replica.errors import BadArguments, UnknownSetting


@dataclass(frozen=True, slots=True)
class MergeTreeSettings:
    """Settings of one table (`SETTINGS` of CREATE TABLE; ClickHouse: MergeTreeSettings.cpp). Whole numbers."""

    index_granularity: int = 8192
    fsync_after_insert: int = 1
    replicated_deduplication_window: int = 10000
    replicated_deduplication_window_seconds: int = 3600
    max_replicated_logs_to_keep: int = 1000
    min_replicated_logs_to_keep: int = 10
    old_parts_lifetime: int = 480
    cleanup_delay_period: int = 30
    max_cleanup_delay_period: int = 300
    cleanup_delay_period_random_add: int = 10
    cleanup_thread_preferred_points_per_iteration: int = 150
    always_fetch_merged_part: int = 0
    prefer_fetch_merged_part_time_threshold: int = 3600
    prefer_fetch_merged_part_size_threshold: int = 10 << 30
    max_replicated_merges_in_queue: int = 1000
    merge_selecting_sleep_ms: int = 5000
    max_merge_selecting_sleep_ms: int = 60_000
    max_postpone_time_for_failed_replicated_fetches_ms: int = 60_000
    max_postpone_time_for_failed_replicated_merges_ms: int = 60_000
    max_postpone_time_for_failed_replicated_tasks_ms: int = 300_000
    max_parts_to_merge_at_once: int = 100
    min_parts_to_merge_at_once: int = 0
    min_age_to_force_merge_seconds: int = 0
    merge_selector_base: int = 5
    merge_selector_window_size: int = 1000
    merge_selector_enable_heuristic_to_remove_small_parts_at_right: int = 1
    merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once: int = 1
    merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent: int = 5
    parts_to_throw_insert: int = 3000
    number_of_free_entries_in_pool_to_lower_max_size_of_merge: int = 8
    max_bytes_to_merge_at_max_space_in_pool: int = 150 << 30
    max_bytes_to_merge_at_min_space_in_pool: int = 1 << 20
    number_of_free_entries_in_pool_to_execute_mutation: int = 20
    max_number_of_mutations_for_replica: int = 0

    @staticmethod
    def from_text(texts: Mapping[str, str]) -> MergeTreeSettings:
        """Raises UnknownSetting for a name, BadArguments for a value that is no whole number."""
        known = [field.name for field in fields(MergeTreeSettings)]
        values: dict[str, int] = {}
        for name, text in texts.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
                raise UnknownSetting(
                    f"Unknown table setting {name}: the nearest that this model knows is {near[0]} (docs/settings.md)"
                )
            if not (text.isascii() and text.isdigit()):
                raise BadArguments(f"Setting {name} takes a whole number, not {text!r}")
            values[name] = int(text)
        for name in ("index_granularity", "max_replicated_logs_to_keep"):
            if values.get(name) == 0:
                raise BadArguments(f"Setting {name} must be at least 1")
        return MergeTreeSettings(**values)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one server (ClickHouse: ServerSettings.cpp and the insert settings of Settings.cpp)."""

    background_fetches_pool_size: int = 16
    background_merges_mutations_pool_size: int = 32  # background_pool_size 16 × its concurrency ratio 2
    background_common_pool_size: int = 8
    insert_keeper_max_retries: int = 20
    insert_keeper_retry_initial_backoff_ms: int = 100
    insert_keeper_retry_max_backoff_ms: int = 10_000
    replicated_fetches_timeout_seconds: float = 60.0
    lock_acquire_timeout: float = 120.0  # seconds that DROP PARTITION waits for a block number of another kind
    replication_wait_for_inactive_replica_timeout: float = 120.0  # seconds, with alter_sync = 2
    receive_timeout: float = 300.0  # seconds that SYSTEM SYNC REPLICA waits
