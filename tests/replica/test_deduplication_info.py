"""The tokens of a block: which rows are whose, which ids follow, and what is left without some of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.commands import ColumnDefinition
from replica.dedup.block_id import block_id, data_hash, insert_extension
from replica.dedup.hashes import DeduplicationHash, DeduplicationVersion, HashKind
from replica.dedup.info import DeduplicationInfo, repeated
from replica.dedup.siphash import siphash128
from replica.dedup.tokens import SourceToken, ViewStep
from replica.errors import NotImplementedInModel
from replica.schema import TableSchema
from tests.replica.cluster import rows

SCHEMA = TableSchema.from_definitions([ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String")])
PART = (11, 22)
OLD, BOTH, NEW = DeduplicationVersion


def conformed(*keys: int) -> pa.Table:
    return rows(*keys).cast(SCHEMA.arrow_schema)


def info_of(
    *lengths: int, version: DeduplicationVersion = NEW, is_async: bool = False, token: str = ""
) -> DeduplicationInfo:
    tokens = [SourceToken(length, token) for length in lengths]
    return DeduplicationInfo(conformed(*range(sum(lengths))), SCHEMA, tokens, version, is_async=is_async)


def ids(info: DeduplicationInfo, offset: int = 0, partition_id: str = "all") -> list[tuple[HashKind, str]]:
    return [(each.kind, each.block_id) for each in info.hashes(offset, partition_id, PART)]


def test_the_id_of_a_single_token_is_that_of_the_block() -> None:
    info = info_of(3)
    expected = block_id("7", insert_extension(conformed(0, 1, 2), SCHEMA, 0))
    assert ids(info, partition_id="7") == [(HashKind.UNIFIED, expected)]


def test_each_token_is_known_by_its_own_rows_wherever_they_stand() -> None:
    info = info_of(2, 3, is_async=True)
    alone = DeduplicationInfo(conformed(2, 3, 4), SCHEMA, [SourceToken(3, source_number=9)], is_async=True)
    assert ids(info, 1) == ids(alone), "and an asynchronous one whatever its place in its insert"


def test_data_are_hashed_once_for_all_partitions() -> None:
    info = info_of(2, 2, 2)
    assert info.computations == 0
    for partition_id in "abc":
        for offset in range(3):
            info.hashes(offset, partition_id, PART)
    assert info.computations == 3


def test_data_are_not_hashed_beside_a_users_token() -> None:
    info = info_of(2, token="t")
    info.hashes(0, "all", PART)
    assert info.computations == 0


def test_every_extra_changes_the_unified_id() -> None:
    variants = [
        SourceToken(1),
        SourceToken(1, source_number=1),
        SourceToken(1, source_id="6f2c"),
        SourceToken(1, views=(ViewStep("d.mv"),)),
        SourceToken(1, views=(ViewStep("d.mv", 1),)),
        SourceToken(1, "t"),
    ]
    texts = {DeduplicationInfo(conformed(1), SCHEMA, [each]).extension(0) for each in variants}
    assert len(texts) == len(variants)
    views = (ViewStep("d.mv"), ViewStep("d.mv2", 3))
    assert DeduplicationInfo(conformed(1), SCHEMA, [SourceToken(1, "t", 4, "u", views)]).extension(0) == (
        "user-token-t:source-id-u:source-number-4:view-id-d.mv:view-block-0:view-id-d.mv2:view-block-3"
    )


# --- generations ---------------------------------------------------------------------------------------------


def test_the_old_id_of_a_synchronous_insert_is_the_hash_of_the_part() -> None:
    assert ids(info_of(2, version=OLD)) == [(HashKind.SYNC, "all_11_22")]
    info = info_of(2, version=OLD)
    info.hashes(0, "all", PART)
    assert info.computations == 0


def test_the_old_id_of_an_asynchronous_insert_is_the_hash_of_its_data() -> None:
    first, second = data_hash(conformed(0, 1), SCHEMA)
    assert ids(info_of(2, version=OLD, is_async=True)) == [(HashKind.ASYNC, f"all_{first}_{second}")]


def test_the_old_id_of_a_token_knows_the_block_and_not_the_source() -> None:
    first, second = siphash128(b"user-token-t:source-number-5")
    info = DeduplicationInfo(conformed(1), SCHEMA, [SourceToken(1, "t", 5, "u")], OLD)
    assert ids(info) == [(HashKind.SYNC, f"all_{first}_{second}")]
    first, second = siphash128(b"user-token-t:source-number-0")
    info = DeduplicationInfo(conformed(1), SCHEMA, [SourceToken(1, "t", 5)], OLD, is_async=True)
    assert ids(info) == [(HashKind.ASYNC, f"all_{first}_{second}")]


def test_the_old_id_behind_a_view() -> None:
    first, second = siphash128(b"11_22:view-id-d.mv:view-block-0")
    info = DeduplicationInfo(conformed(1), SCHEMA, [SourceToken(1, views=(ViewStep("d.mv"),))], OLD)
    assert ids(info) == [(HashKind.SYNC, f"all_{first}_{second}")]


def test_in_between_both_are_there() -> None:
    both = ids(info_of(2, version=BOTH))
    assert both == [*ids(info_of(2, version=OLD)), *ids(info_of(2, version=NEW))]


# --- what is left --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_without_some_tokens_the_others_keep_their_rows_and_ids(lengths: list[int], data: st.DataObject) -> None:
    info = info_of(*lengths, is_async=True)
    gone = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=len(lengths) - 1))
    kept = [offset for offset in range(len(lengths)) if offset not in gone]
    before = [ids(info, offset) for offset in kept]
    smaller = info.without(gone)
    assert [ids(smaller, offset) for offset in range(len(kept))] == before
    assert smaller.computations == 0, "hashes are carried over"
    starts = np.cumsum([0, *lengths])
    expected = [key for offset in kept for key in range(starts[offset], starts[offset + 1])]
    assert smaller.block.column("k").to_pylist() == expected


def test_rows_are_followed_back_to_their_tokens() -> None:
    info = info_of(2, 1, 3)
    assert info.tokens_of(np.array([0, 1])) == (0,)
    assert info.tokens_of(np.array([1, 2])) == (0, 1)
    assert info.tokens_of(np.array([5, 2])) == (1, 2)


def test_a_block_that_a_view_made_anew_keeps_its_ids_and_cannot_lose_rows() -> None:
    info = info_of(2, 2, is_async=True)
    changed = info.reanchored(conformed(1))
    assert [ids(changed, offset) for offset in (0, 1)] == [ids(info, offset) for offset in (0, 1)]
    with pytest.raises(NotImplementedInModel, match=r"1 of 2 .* 4 rows, and the block 1"):
        changed.without([0])


def test_of_equal_tokens_the_first_remains() -> None:
    a, b = (DeduplicationHash(HashKind.UNIFIED, name) for name in "ab")
    assert repeated([(0, a), (1, b), (2, a), (3, a)]) == [2, 3]
    assert repeated([(0, a), (0, b), (1, b)]) == [1], "one of several ids is enough"
    assert repeated([]) == []
