"""The extension: the text that stands for one inserted block, and whose hash is its block id.

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


def base_of_data(data_hash: tuple[int, int]) -> str:
    """How an extension begins when the data decide."""
    return f"{data_hash[0]}_{data_hash[1]}"


def base_of_token(token: str) -> str:
    """How an extension begins when a non-empty `insert_deduplication_token` decides."""
    return f"user-token-{token}"


def extension(base: str, source_number: int, source_id: str = "empty", views: Sequence[ViewStep] = ()) -> str:
    """The whole text.

    `source_number` counts from 0 the blocks of the INSERT as they arrived. `source_id` is the UUID of the
    materialized view that was inserted into by name, `empty` for a table.
    """
    extras = [f"source-id-{source_id}", f"source-number-{source_number}"]
    for step in views:
        extras += [f"view-id-{step.view}", f"view-block-{step.block}"]
    return ":".join((base, *extras))
