"""Tokens: what the rows of an inserted block are known by, and the texts whose hashes are their ids.

    <X>_<Y> | user-token-<token>   :source-id-<S>:source-number-<N>   [:view-id-<V>:view-block-<M>]...

ClickHouse 26.9, the unified scheme. A token stands verbatim, whatever it contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One materialized view on the way from the inserted table to the one that stores the rows.

    `view` is `database.name`, unquoted; `block` counts from 0 the blocks that its SELECT made of the source block.
    """

    view: str
    block: int = 0


@dataclass(frozen=True, slots=True)
class SourceToken:
    """Where so many consecutive rows of a block come from.

    `by_user` is the `insert_deduplication_token`; when it is empty the data decide. `source_number` counts from 0
    the blocks of the INSERT as they arrived. `source_id` is the UUID of the materialized view that was inserted into
    by name, `empty` for a table.
    """

    rows: int
    by_user: str = ""
    source_number: int = 0
    source_id: str = "empty"
    views: tuple[ViewStep, ...] = ()


def base_of_data(data_hash: tuple[int, int]) -> str:
    """How an extension begins when the data decide."""
    return f"{data_hash[0]}_{data_hash[1]}"


def base_of_token(token: str) -> str:
    """How an extension begins when a non-empty `insert_deduplication_token` decides."""
    return f"user-token-{token}"


def extension(base: str, source_number: int, source_id: str = "empty", views: Sequence[ViewStep] = ()) -> str:
    """The whole text of the unified scheme."""
    extras = [f"source-id-{source_id}", f"source-number-{source_number}"]
    return ":".join((base, *extras, *_of_views(views)))


def legacy_extension(base: str, source_number: int | None, views: Sequence[ViewStep] = ()) -> str:
    """The text of the older schemes: no source id, and a source number only beside a user's token."""
    extras = [] if source_number is None else [f"source-number-{source_number}"]
    return ":".join((base, *extras, *_of_views(views)))


def _of_views(views: Sequence[ViewStep]) -> list[str]:
    return [text for step in views for text in (f"view-id-{step.view}", f"view-block-{step.block}")]
