"""Pieces: a block of any tokens over any partitions, and what is left of each when some of its ids are known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replica.commands import CreateTable
from replica.dedup.hashes import DeduplicationHash
from replica.dedup.info import DeduplicationInfo
from replica.dedup.tokens import SourceToken
from replica.insert.piece import Piece, Recipe, pieces_of
from replica.storage.part_codec import ArrowCodec
from replica.storage.part_files import read_part
from replica.table_structure import TableStructure
from tests.replica.cluster import definition, rows

TABLE: CreateTable = definition(partition_by="k % 3")
STRUCTURE = TableStructure.from_definition(TABLE)
RECIPE = Recipe.of_table(STRUCTURE, ArrowCodec())

# Tokens by name, each with the keys of its rows; equal names are equal tokens.
blocks = st.lists(
    st.tuples(st.sampled_from("abcde"), st.lists(st.integers(0, 50), min_size=1, max_size=4)), min_size=1, max_size=6
)


def pieces(block: list[tuple[str, list[int]]]) -> list[Piece]:
    listed = rows(*[key for _, keys in block for key in keys]).cast(STRUCTURE.schema.arrow_schema)
    tokens = [SourceToken(len(keys), token) for token, keys in block]
    return pieces_of(RECIPE, DeduplicationInfo(listed, STRUCTURE.schema, tokens, is_async=True), deduplicated=True)


def keys_of(piece: Piece | None) -> list[int]:
    return [] if piece is None else read_part(piece.image.files, ArrowCodec()).column("k").to_pylist()


def ids_of(token: str) -> set[DeduplicationHash]:
    """Of a token in every partition."""
    return {each for key in range(3) for piece in pieces([(token, [key])]) for each in piece.hashes}


@settings(deadline=None, max_examples=50)
@given(blocks)
def test_of_equal_tokens_the_first_with_rows_in_a_partition_brings_them(
    block: list[tuple[str, list[int]]],
) -> None:
    for piece in pieces(block):
        partition = int(piece.partition_id)
        own = [(token, [key for key in keys if key % 3 == partition]) for token, keys in block]
        first: dict[str, list[int]] = {}
        for token, keys in own:
            if keys:
                first.setdefault(token, keys)
        assert keys_of(piece) == sorted(key for keys in first.values() for key in keys)
        assert piece.rows == sum(len(keys) for _, keys in own)
        assert set(piece.hashes) == {
            each for token in first for each in ids_of(token) if each.block_id.startswith(f"{partition}_")
        }


@settings(deadline=None, max_examples=50)
@given(blocks, st.sets(st.sampled_from("abcde")))
def test_without_what_is_known_the_rest_remains_whole(block: list[tuple[str, list[int]]], known: set[str]) -> None:
    ids = {each for token in sorted(known) for each in ids_of(token)}
    rest = {piece.partition_id: keys_of(piece) for piece in pieces([each for each in block if each[0] not in known])}
    for piece in pieces(block):
        smaller = piece.without(ids) if ids.intersection(piece.hashes) else piece
        assert keys_of(smaller) == rest.get(piece.partition_id, [])
        if smaller is not None:
            assert smaller.rows == piece.rows
            assert not ids.intersection(smaller.hashes)
