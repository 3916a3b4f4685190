"""Whether an insert is deduplicated: what its settings say together.

ClickHouse 26.9: DeduplicateInsert.cpp. `deduplicate_insert` rules over the two older switches, and for the rows of a
SELECT `deduplicate_insert_select` is asked first.
"""

from __future__ import annotations

from dataclasses import dataclass

from replica.commands import DeduplicateInsert, DeduplicateInsertSelect, InsertOptions, RowSource
from replica.errors import DeduplicationIsNotPossible


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Whether it is on, and the setting (with what else counts) that has decided it."""

    enabled: bool
    decided_by: str

    def __str__(self) -> str:
        return f"{'on' if self.enabled else 'off'}: {self.decided_by}"

    def in_table(self, window: int, setting: str) -> Deduplication:
        """What remains of it in a table that keeps `window` ids, by a setting of that name."""
        if self.enabled and window == 0:
            return Deduplication(False, f"{setting} = 0")
        return self

    def in_view(self, options: InsertOptions) -> Deduplication:
        """What remains of it in the target of a materialized view that the rows flow through."""
        if self.enabled and not options.deduplicate_blocks_in_dependent_materialized_views:
            return Deduplication(False, "deduplicate_blocks_in_dependent_materialized_views = 0")
        return self


def deduplication_of(options: InsertOptions, *, is_async: bool = False) -> Deduplication:
    """What the settings of an insert ask for.

    Raises DeduplicationIsNotPossible for `force_enable` of a SELECT that is not stable and comes without a token.
    """
    if options.row_source is RowSource.DATA:
        return _of_data(options, is_async)
    return _of_select(options)


def _of_data(options: InsertOptions, is_async: bool) -> Deduplication:
    mode = options.deduplicate_insert
    if mode is not DeduplicateInsert.BACKWARD_COMPATIBLE_CHOICE:
        return Deduplication(mode is DeduplicateInsert.ENABLE, f"deduplicate_insert = {mode}")
    name = "async_insert_deduplicate" if is_async else "insert_deduplicate"
    enabled = options.async_insert_deduplicate if is_async else options.insert_deduplicate
    return Deduplication(enabled, f"{name} = {int(enabled)} (deduplicate_insert = {mode})")


def _of_select(options: InsertOptions) -> Deduplication:
    mode = options.deduplicate_insert_select
    setting = f"deduplicate_insert_select = {mode}"
    stable = options.row_source is RowSource.STABLE_SELECT or bool(options.insert_deduplication_token)
    match mode:
        case DeduplicateInsertSelect.DISABLE:
            return Deduplication(False, setting)
        case DeduplicateInsertSelect.FORCE_ENABLE:
            if not stable:
                raise DeduplicationIsNotPossible(
                    f"{setting}, but the SELECT may give other rows when it runs again: add ORDER BY ALL or an "
                    "insert_deduplication_token, or set deduplicate_insert_select to enable_when_possible, which "
                    "does without deduplication then"
                )
            return Deduplication(True, setting)
        case DeduplicateInsertSelect.ENABLE_WHEN_POSSIBLE if not stable:
            return Deduplication(False, f"{setting}, and the SELECT is not stable")
    data = _of_data(options, is_async=False)
    what = "the SELECT is stable" if options.row_source is RowSource.STABLE_SELECT else "there is a token"
    remark = what if stable else "the SELECT is not stable, so a retry may not be recognised"
    return Deduplication(data.enabled, f"{data.decided_by} ({setting}, {remark})")
