"""What an inserted block consists of: its tokens, each with a range of rows, and the ids that follow from them.

A block of an ordinary INSERT has one token. Blocks that were put together from several inserts have one each, so
that a retry of one of them removes its rows only. ClickHouse: InsertDeduplication.cpp, `DeduplicationInfo`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from replica.dedup.block_id import data_hash
from replica.dedup.hashes import DeduplicationHash, DeduplicationVersion, HashKind
from replica.dedup.siphash import siphash128
from replica.dedup.tokens import SourceToken, ViewStep, base_of_data, base_of_token, extension, legacy_extension
from replica.errors import NotImplementedInModel
from replica.schema.table import TableSchema

Hash = tuple[int, int]


class DeduplicationInfo:
    """The tokens of one block; a token is named by its `offset`, its place among them.

    `block` has the columns that the INSERT carried, in its order, before DEFAULTs are filled in. Hashes of data are
    computed when an id first needs them, and never twice, however many partitions the block spans;
    `computations` counts them.
    """

    def __init__(
        self,
        block: pa.Table,
        schema: TableSchema,
        tokens: Sequence[SourceToken],
        version: DeduplicationVersion = DeduplicationVersion.NEW_UNIFIED_HASH,
        *,
        is_async: bool = False,
    ) -> None:
        self.block = block
        self.tokens = tuple(tokens)
        self.is_async = is_async
        self.computations = 0
        self._schema = schema
        self._version = version
        self._ends = list(accumulate(token.rows for token in self.tokens))
        self._data_hashes: dict[int, Hash] = {}

    @property
    def rows(self) -> int:
        """How many rows the tokens describe."""
        return self._ends[-1] if self._ends else 0

    @property
    def describes_block(self) -> bool:
        """False for a block that was put together anew on its way: nobody knows which rows are whose."""
        return self.rows == len(self.block)

    def tokens_of(self, row_numbers: np.ndarray) -> tuple[int, ...]:
        """The tokens to which these rows of the block belong."""
        if len(self.tokens) == 1:
            return (0,)
        return tuple(int(offset) for offset in np.unique(np.searchsorted(self._ends, row_numbers, side="right")))

    # --- ids ---------------------------------------------------------------------------------------------------

    def hashes(self, offset: int, partition_id: str, part_hash: Hash) -> list[DeduplicationHash]:
        """The ids of a token in a partition, the older generation first.

        `part_hash` is that of the data files of the part which the partition's rows make: the older generation
        knows a synchronous insert by it.
        """
        found = []
        if self._version.has_legacy:
            kind = HashKind.ASYNC if self.is_async else HashKind.SYNC
            found.append(DeduplicationHash.of(kind, partition_id, self._legacy_hash(offset, part_hash)))
        if self._version.has_unified:
            unified = siphash128(self.extension(offset).encode())
            found.append(DeduplicationHash.of(HashKind.UNIFIED, partition_id, unified))
        return found

    def extension(self, offset: int) -> str:
        """The text whose hash is the unified id of a token."""
        token = self.tokens[offset]
        base = base_of_token(token.by_user) if token.by_user else base_of_data(self.data_hash(offset))
        return extension(base, self._source_number(token), token.source_id, token.views)

    def _legacy_hash(self, offset: int, part_hash: Hash) -> Hash:
        token = self.tokens[offset]
        if token.by_user:
            text = legacy_extension(base_of_token(token.by_user), self._source_number(token), token.views)
            return siphash128(text.encode())
        is_whole_part = len(self.tokens) == 1 and not self.is_async
        by_data = part_hash if is_whole_part else self.data_hash(offset)
        if not token.views:
            return by_data
        return siphash128(legacy_extension(base_of_data(by_data), None, token.views).encode())

    def _source_number(self, token: SourceToken) -> int:
        # An asynchronous insert meets other neighbours at every try: its place among them says nothing.
        return 0 if self.is_async else token.source_number

    def data_hash(self, offset: int) -> Hash:
        """The hash of a token's data. The first call computes those of all tokens that need one."""
        if offset not in self._data_hashes:
            self._compute_data_hashes()
        return self._data_hashes[offset]

    def _compute_data_hashes(self) -> None:
        pending = [at for at, token in enumerate(self.tokens) if not token.by_user and at not in self._data_hashes]
        self._data_hashes |= {offset: data_hash(self._rows_of(offset), self._schema) for offset in pending}
        self.computations += len(pending)

    def _rows_of(self, offset: int) -> pa.Table:
        rows = self.tokens[offset].rows
        return self.block.slice(self._ends[offset] - rows, rows)

    # --- what is left when something is known already -----------------------------------------------------------

    def passed(self, views: tuple[ViewStep, ...], version: DeduplicationVersion) -> DeduplicationInfo:
        """The same rows on their way to another table, through these views. What was hashed is not hashed again."""
        tokens = [replace(token, views=views) for token in self.tokens]
        info = DeduplicationInfo(self.block, self._schema, tokens, version, is_async=self.is_async)
        info._data_hashes = self._data_hashes
        return info

    def reanchored(self, block: pa.Table) -> DeduplicationInfo:
        """The same tokens for rows that were made of these on the way to another table."""
        self._compute_data_hashes()
        info = DeduplicationInfo(block, self._schema, self.tokens, self._version, is_async=self.is_async)
        info._data_hashes = dict(self._data_hashes)
        return info

    def without(self, offsets: Collection[int]) -> DeduplicationInfo:
        """The block without the rows of some tokens, which are not all of them.

        Raises NotImplementedInModel when the tokens do not describe the block's rows any more: those of one token
        cannot be told from the others'. To remove all of them needs no rows.
        """
        if not self.describes_block:
            raise NotImplementedInModel(
                f"Cannot filter {len(offsets)} of {len(self.tokens)} deduplicated blocks of the insert: they have "
                f"{self.rows} rows, and the block {self.block.num_rows}, because a view that changes the number of "
                "rows was passed on the way. Only the whole insert can be deduplicated here"
            )
        kept = [offset for offset in range(len(self.tokens)) if offset not in offsets]
        tokens = [self.tokens[offset] for offset in kept]
        block = pa.concat_tables([self.block.schema.empty_table(), *map(self._rows_of, kept)])
        info = DeduplicationInfo(block, self._schema, tokens, self._version, is_async=self.is_async)
        info._data_hashes = {at: self._data_hashes[old] for at, old in enumerate(kept) if old in self._data_hashes}
        return info


def repeated(claims: Iterable[tuple[int, DeduplicationHash]]) -> list[int]:
    """The tokens one of whose ids an earlier one has as well, in order: of equal ones the first remains."""
    first: dict[DeduplicationHash, int] = {}
    return sorted({offset for offset, claimed in claims if first.setdefault(claimed, offset) != offset})
