"""The rows of one partition of an inserted block, as a part without a name, and the ids they are known by."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from replica.dedup.hashes import DeduplicationHash, HashKind
from replica.dedup.info import DeduplicationInfo, repeated
from replica.environment import PartCodec
from replica.expression import complete, sort_block
from replica.storage.part_files import PartImage, build_part
from replica.table_structure import TableStructure


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an inserted block becomes parts of a table.

    `derive` makes the stored rows of the inserted ones: DEFAULTs are filled in, or a view's SELECT is run. With
    `row_by_row` the n-th row comes of the n-th.
    """

    structure: TableStructure
    codec: PartCodec
    derive: Callable[[pa.Table], pa.Table]
    row_by_row: bool = True

    @staticmethod
    def of_table(structure: TableStructure, codec: PartCodec) -> Recipe:
        """The recipe for what is inserted into the table itself."""
        return Recipe(structure, codec, lambda block: complete(block, structure.schema))

    def image(self, rows: pa.Table) -> PartImage:
        return build_part(sort_block(rows, self.structure.sorting_key), self.structure.schema, self.codec)


@dataclass(frozen=True, slots=True)
class Origin:
    """The block that a piece was made of, and how."""

    recipe: Recipe
    info: DeduplicationInfo


@dataclass(frozen=True, slots=True)
class Piece:
    """A part to be, without a name.

    `claims` are its ids, each with the token of the block that it stands for; none when the insert is not
    deduplicated. Without an `origin` the part was there before, and is known as a whole. `removed_rows` were in the
    block and are not in the part. A part that lay in `detached/` goes back to `detached_folder` there unless it is
    stored.
    """

    partition_id: str
    image: PartImage
    claims: tuple[tuple[int, DeduplicationHash], ...] = ()
    origin: Origin | None = None
    removed_rows: int = 0
    detached_folder: str = ""

    @staticmethod
    def of_part(partition_id: str, image: PartImage, block_id: str, detached_folder: str = "") -> Piece:
        """A part that comes again; not twice if it has an id."""
        claims = ((0, DeduplicationHash(HashKind.UNIFIED, block_id)),) if block_id else ()
        return Piece(partition_id, image, claims, detached_folder=detached_folder)

    @property
    def is_async(self) -> bool:
        return self.origin is not None and self.origin.info.is_async

    @property
    def hashes(self) -> tuple[DeduplicationHash, ...]:
        return tuple(claimed for _, claimed in self.claims)

    @property
    def block_ids(self) -> tuple[str, ...]:
        return tuple(each.block_id for each in self.hashes)

    @property
    def rows(self) -> int:
        """The rows of this partition in the block as it was inserted."""
        return self.image.rows + self.removed_rows

    def without(self, known: Collection[DeduplicationHash]) -> Piece | None:
        """The piece anew, without the rows of the tokens that have one of these ids; None when nothing is left.

        Raises NotImplementedInModel as `DeduplicationInfo.without`. A pure job for the workers.
        """
        gone = {offset for offset, claimed in self.claims if claimed in known}
        if gone >= {offset for offset, _ in self.claims}:
            return None
        return self._without_tokens(gone)

    def without_repetitions(self) -> Piece:
        """The piece with the first only of tokens that are known by the same id."""
        gone = repeated(self.claims)
        return (gone and self._without_tokens(gone)) or self

    def _without_tokens(self, gone: Collection[int]) -> Piece | None:
        assert self.origin is not None
        info = self.origin.info.without(gone)
        for piece in _pieces(self.origin.recipe, info, deduplicated=True, only=self.partition_id):
            return replace(piece, removed_rows=self.rows - piece.image.rows)
        return None


def pieces_of(recipe: Recipe, info: DeduplicationInfo, *, deduplicated: bool) -> list[Piece]:
    """The parts that a block makes, one a partition, in order of first appearance. A pure job for the workers."""
    return [piece.without_repetitions() for piece in _pieces(recipe, info, deduplicated=deduplicated)]


def _pieces(
    recipe: Recipe, info: DeduplicationInfo, *, deduplicated: bool, only: str | None = None
) -> Iterator[Piece]:
    stored = recipe.derive(info.block)
    partition_key = recipe.structure.partition_key
    numbers = partition_key.row_numbers(stored) if deduplicated and len(info.tokens) > 1 else []
    tokens = {partition_id: _tokens_in(recipe, info, rows) for partition_id, rows in numbers}
    for partition_id, rows in partition_key.split(stored):
        if only in (None, partition_id):
            image = recipe.image(rows)
            claims = _claims(info, tokens.get(partition_id, (0,)), partition_id, image) if deduplicated else ()
            yield Piece(partition_id, image, claims, Origin(recipe, info))


def _tokens_in(recipe: Recipe, info: DeduplicationInfo, row_numbers: np.ndarray) -> tuple[int, ...]:
    """The tokens that have rows in a partition; all of them where rows cannot be followed back to their tokens."""
    if recipe.row_by_row and info.describes_block:
        return info.tokens_of(row_numbers)
    return tuple(range(len(info.tokens)))


def _claims(
    info: DeduplicationInfo, offsets: tuple[int, ...], partition_id: str, image: PartImage
) -> tuple[tuple[int, DeduplicationHash], ...]:
    first, second = struct.unpack("<QQ", image.header.uncompressed_hash_of_compressed_files)
    return tuple(
        (offset, claimed) for offset in offsets for claimed in info.hashes(offset, partition_id, (first, second))
    )
