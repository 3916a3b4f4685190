from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import (
    BadDataPartName,
    CannotParseText,
    ClickHouseError,
    LogicalError,
    NotImplementedInModel,
    UnknownFormatVersion,
)
from replica.log_entry import AlterMetadata, EntryType, LogEntry, MergeType, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from tests.clickhouse_18.histories import every_entry_text

HEAD = "format version: 4\ncreate_time: 2026-01-15 10:20:30\nsource replica: r1\nblock_id: \n"


def name(text: str) -> PartName:
    return PartName.parse(text)


COLUMNS = "columns format version: 1\n2 columns:\n`k` UInt64\n`v` String\n"
ALTER = (
    f"{HEAD}alter\nalter_version\n3\nhave_mutation\n1\ncolumns_str_size:\n59\n{COLUMNS}\n"
    "metadata_str_size:\n9\nmetadät\n\n"
)

BODIES = {
    "get with quorum, compact": (
        "get\nall_5_5_0\npart_type: Compact\nquorum: 2\n",
        {"type": EntryType.GET_PART, "new_part": name("all_5_5_0"), "part_type": "Compact", "quorum": 2},
    ),
    "attach": (
        "attach\nall_6_6_0\npart_checksum: 3B1C0F5E9A7D42C8B6E1F0A9D8C7B6A5\n",
        {
            "type": EntryType.ATTACH_PART,
            "new_part": name("all_6_6_0"),
            "part_checksum": "3B1C0F5E9A7D42C8B6E1F0A9D8C7B6A5",
        },
    ),
    "merge": (
        "merge\nall_0_4_1\nall_5_5_0\ninto\nall_0_5_2\ndeduplicate: 1\nmerge_type: 2\ncleanup: 1\n",
        {
            "type": EntryType.MERGE_PARTS,
            "source_parts": (name("all_0_4_1"), name("all_5_5_0")),
            "new_part": name("all_0_5_2"),
            "deduplicate": True,
            "merge_type": MergeType.TTL_DELETE,
            "cleanup": True,
        },
    ),
    "detach of a range": (
        "detach\n202401_0_17_999999999_999999999\n",
        {"type": EntryType.DROP_RANGE, "new_part": PartName.drop_range("202401", 17), "is_detach": True},
    ),
    "drop of a part": ("drop\n202401_3_7_2\n", {"type": EntryType.DROP_PART, "new_part": name("202401_3_7_2")}),
    "clear column": (
        "clear_column\nmy\\tcol\nfrom\n201905_0_9_999999999\n",
        {"type": EntryType.CLEAR_COLUMN, "cleared_name": "my\tcol", "new_part": name("201905_0_9_999999999")},
    ),
    "clear index": (
        "clear_index\nit\\'s\nfrom\n201905_0_9_999999999\n",
        {"type": EntryType.CLEAR_INDEX, "cleared_name": "it's", "new_part": name("201905_0_9_999999999")},
    ),
    "replace range": (
        "REPLACE_RANGE\ndrop_range_name: 202401_0_18_999999999_999999999\nfrom_database: default\nfrom_table: a\\nb\n"
        "source_parts: ['202401_1_4_1','202401_5_5_0']\nnew_parts: ['202401_19_19_1','202401_20_20_0']\n"
        "part_checksums: ['0A1B','it\\'s']\ncolumns_version: -1\n",
        {
            "type": EntryType.REPLACE_RANGE,
            "replace_range": ReplaceRange(
                PartName.drop_range("202401", 18),
                "default",
                "a\nb",
                (
                    ReplacedPart(name("202401_1_4_1"), name("202401_19_19_1"), "0A1B"),
                    ReplacedPart(name("202401_5_5_0"), name("202401_20_20_0"), "it's"),
                ),
            ),
        },
    ),
    "replace by nothing": (
        "REPLACE_RANGE\ndrop_range_name: 202401_0_0_0\nfrom_database: d\nfrom_table: t\n"
        "source_parts: []\nnew_parts: []\npart_checksums: []\ncolumns_version: -1\n",
        {"type": EntryType.REPLACE_RANGE, "replace_range": ReplaceRange(name("202401_0_0_0"), "d", "t", ())},
    ),
    "mutate for an alter": (
        "mutate\nall_0_5_2\nto\nall_0_5_2_7\nalter_version\n3\n",
        {
            "type": EntryType.MUTATE_PART,
            "source_parts": (name("all_0_5_2"),),
            "new_part": name("all_0_5_2_7"),
            "alter_version": 3,
        },
    ),
    "alter": (
        ALTER.removeprefix(HEAD),
        {
            "type": EntryType.ALTER_METADATA,
            "alter_version": 3,
            "alter_metadata": AlterMetadata(True, COLUMNS, "metadät\n"),
        },
    ),
}


@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str) -> None:
    text, fields = BODIES[body]
    expected = LogEntry(create_time=1768472430, source_replica="r1", **fields)  # type: ignore[arg-type]
    assert LogEntry.parse(HEAD + text) == expected
    assert expected.to_text() == HEAD + text


NEWER = [
    "format version: 5\ncreate_time: 2026-01-15 10:24:00\nsource replica: r1\nblock_id: \nmutate\nall_0_5_2\nto\n"
    "all_0_5_2_7\nto_uuid\n6f0c1f6e-2a52-4a35-9c0c-0d8a1a6a7b11\nalter_version\n3\n",
    "format version: 6\ncreate_time: 2026-01-15 10:21:00\nsource replica: r2\nblock_id: \nmerge\nall_0_4_1\n"
    "all_5_5_0\ninto\nall_0_5_2\ndeduplicate: 1\nmerge_type: 2\ninto_uuid: 6f0c1f6e-2a52-4a35-9c0c-0d8a1a6a7b11\n"
    "deduplicate_by_columns: 'k','a,\\'b'\n",
    "format version: 7\ncreate_time: 2026-01-15 10:26:00\nsource replica: r1\nblock_id: \nlog_entry_id: 1c2d-sync\n"
    "sync_pinned_part_uuids\n\n",
    "format version: 7\ncreate_time: 2026-01-15 10:27:00\nsource replica: r1\nblock_id: \nlog_entry_id: 1c2d-clone\n"
    "clone_part_from_shard\nall_0_5_2\nsource_shard: /clickhouse/tables/02/t\n",
]
OLDER = [
    "format version: 1\nsource replica: r1\nget\nall_0_0_0\n",
    "format version: 2\ncreate_time: 2026-01-15 10:26:00\nsource replica: r1\nmerge\nall_0_0_0\ninto\nall_0_0_1\n",
    "format version: 3\ncreate_time: 2026-01-15 10:26:00\nsource replica: r1\nblock_id: \nmerge\nall_0_0_0\ninto\n"
    "all_0_0_1\n",
    "format version: 3\ncreate_time: 2026-01-15 10:26:00\nsource replica: r1\nblock_id: b\\\\c\nget\nall_0_0_0\n",
]


@pytest.mark.parametrize("text", NEWER + OLDER)
def test_versions_come_back_as_they_were(text: str) -> None:
    entry = LogEntry.parse(text)
    assert entry.to_text() == text


@pytest.mark.parametrize("text", NEWER)
def test_the_version_follows_the_fields(text: str) -> None:
    entry = LogEntry.parse(text)
    assert replace(entry, format_version=4).to_text() == text


@pytest.mark.parametrize("version", [0, 8])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(
        UnknownFormatVersion, match=f"^Unknown ReplicatedMergeTreeLogEntry format version: {version}$"
    ):
        LogEntry.parse(HEAD.replace("version: 4", f"version: {version}") + "get\nall_0_0_0\n")


def test_the_znode_tells_a_time_that_the_text_does_not() -> None:
    assert LogEntry.parse(OLDER[0], znode_ctime_ms=1_768_472_430_999).create_time == 1_768_472_430
    assert LogEntry.parse(OLDER[0]).create_time == 0
    zero = f"{HEAD}get\nall_0_0_0\n".replace("2026-01-15 10:20:30", "0000-00-00 00:00:00")
    assert LogEntry.parse(zero, znode_ctime_ms=5000).create_time == 5
    assert LogEntry.parse(f"{HEAD}get\nall_0_0_0\n", znode_ctime_ms=5000).create_time == 1_768_472_430


@pytest.mark.parametrize(
    "text",
    [
        "",
        "format version: 4",
        "format version: x\n",
        "format version: 99999999999999999999999\n",
        HEAD,
        HEAD + "what\nall_0_0_0\n",
        HEAD + "get\nall_0_0_0",
        HEAD + "get\nall_0_0_0\nmore\n",
        HEAD + "get\nall_0_0_0\nquorum: 2\npart_type: Compact\n",
        HEAD + "merge\nall_0_0_0\nall_0_0_1\n",
        HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\n",
        HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\ndeduplicate: 2\n",
        HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\ndeduplicate: 0\ncleanup: 1\ncleanup: 1\n",
        HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\ndeduplicate: 0\ndeduplicate_by_columns: \n",
        HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\ndeduplicate: 0\ninto_uuid: no\n",
        HEAD + "clear_column\na\\qb\nfrom\nall_0_0_999999999\n",
        HEAD + "clear_column\na\nto\nall_0_0_999999999\n",
        HEAD + "sync_pinned_part_uuids\n",
        HEAD.replace("10:20:30", "10:20:61") + "get\nall_0_0_0\n",
        HEAD.replace("2026-01-15", "2026-1-15") + "get\nall_0_0_0\n",
        HEAD.replace("2026", "1969") + "get\nall_0_0_0\n",
        HEAD.replace("2026", "2200") + "get\nall_0_0_0\n",
        HEAD.replace(": r1", ": r\t1") + "get\nall_0_0_0\n",
        ALTER.replace("\n59\n", "\n58\n"),
        ALTER.replace("\n9\n", "\n3000\n"),
        ALTER.replace("\n9\n", "\n6\n"),  # in the middle of a character
        BODIES["replace range"][0].join([HEAD, ""]).replace(",'202401_20_20_0'", ""),
        BODIES["replace range"][0].join([HEAD, ""]).replace("']\nnew", "',]\nnew"),
    ],
)
def test_unreadable_text_is_refused(text: str) -> None:
    with pytest.raises(CannotParseText, match=r"^Cannot parse log entry: "):
        LogEntry.parse(text)


def test_parts_that_are_none_and_merges_of_newer_releases_are_refused() -> None:
    with pytest.raises(BadDataPartName):
        LogEntry.parse(HEAD + "get\n../0_0_0\n")
    with pytest.raises(NotImplementedInModel, match="MergeType 5"):
        LogEntry.parse(HEAD + "merge\nall_0_0_0\ninto\nall_0_0_1\ndeduplicate: 0\nmerge_type: 5\n")


def test_an_entry_without_what_it_needs_is_not_written() -> None:
    for kind in set(EntryType) - {EntryType.SYNC_PINNED_PART_UUIDS}:
        with pytest.raises(LogicalError):
            LogEntry(kind, 1).to_text()
    with pytest.raises(LogicalError, match="line feed"):
        LogEntry(EntryType.GET_PART, 1, source_replica="a\nb", new_part=name("all_0_0_0")).to_text()


@given(
    st.text(alphabet="get\nalmr_0:59 vsiondcp'[],\\", max_size=80),
    st.sampled_from(every_entry_text()),
    st.integers(0),
)
def test_damage_never_ends_in_a_traceback(noise: str, text: str, where: int) -> None:
    position = where % len(text)
    for damaged in (text[:position] + noise, text[:position] + noise + text[position:], noise):
        try:
            LogEntry.parse(damaged)
        except ClickHouseError:
            continue


def test_virtual_parts_and_drop_ranges() -> None:
    def derived(body: str) -> tuple[list[str], str | None]:
        entry = LogEntry.parse(HEAD + BODIES[body][0])
        return [str(part) for part in entry.virtual_parts], entry.drop_range and str(entry.drop_range)

    whole = "202401_0_18_999999999_999999999"
    assert derived("attach") == (["all_6_6_0"], None)
    assert derived("merge") == (["all_0_5_2"], None)
    assert derived("mutate for an alter") == (["all_0_5_2_7"], None)
    assert derived("detach of a range") == (["202401_0_17_999999999_999999999"], "202401_0_17_999999999_999999999")
    assert derived("drop of a part") == ([], "202401_3_7_2")
    assert derived("replace range") == (["202401_19_19_1", "202401_20_20_0", whole], whole)
    assert derived("replace by nothing") == ([], None)
    assert derived("alter") == ([], None)
    assert derived("clear column") == ([], None)


def test_merge_types_have_the_words_of_the_system_table() -> None:
    assert [str(kind) for kind in MergeType] == ["Regular", "TTLDelete", "TTLRecompress", "TTLDrop"]


# --- any entry -----------------------------------------------------------------------------------------------

plain = st.text(alphabet=st.characters(exclude_characters="\n\t", exclude_categories=["Cs"]), max_size=8)
wild = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
parts = st.builds(
    lambda partition, block, more, level, mutation: PartName(partition, block, block + more, level, mutation),
    st.sampled_from(["all", "202401", "-1", "0-3"]),
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(0, 9),
    st.integers(0, 9),
)
uuids = st.just("") | st.uuids().map(str)
ranges = st.builds(PartName.drop_range, st.sampled_from(["all", "1-1"]), st.integers(0, 99))
envelope = {
    "create_time": st.integers(1, 2**32 - 1),
    "source_replica": plain,
    "block_id": wild,
    "log_entry_id": wild,
    "quorum": st.integers(0, 9),
    "part_type": st.sampled_from(["", "Compact"]),
    "format_version": st.integers(4, 7),
}


def entries(kind: EntryType, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[LogEntry]:
    return st.builds(LogEntry, type=st.just(kind), **envelope, **fields)  # type: ignore[arg-type]


any_entry = st.one_of(
    entries(EntryType.GET_PART, new_part=parts),
    entries(EntryType.ATTACH_PART, new_part=parts, part_checksum=plain),
    entries(
        EntryType.MERGE_PARTS,
        new_part=parts,
        source_parts=st.lists(parts, max_size=3).map(tuple),
        deduplicate=st.booleans(),
        deduplicate_by_columns=st.lists(wild, max_size=3).map(tuple),
        merge_type=st.sampled_from(MergeType),
        cleanup=st.booleans(),
        new_part_uuid=uuids,
    ),
    entries(EntryType.DROP_RANGE, new_part=ranges, is_detach=st.booleans()),
    entries(EntryType.DROP_PART, new_part=parts, is_detach=st.booleans()),
    entries(EntryType.CLEAR_COLUMN, new_part=ranges, cleared_name=wild),
    entries(EntryType.CLEAR_INDEX, new_part=ranges, cleared_name=wild),
    entries(
        EntryType.REPLACE_RANGE,
        replace_range=st.builds(
            ReplaceRange,
            ranges,
            wild,
            wild,
            st.lists(st.builds(ReplacedPart, parts, parts, wild), max_size=3).map(tuple),
            st.integers(-1, 5),
        ),
    ),
    entries(
        EntryType.MUTATE_PART,
        new_part=parts,
        source_parts=parts.map(lambda part: (part,)),
        alter_version=st.integers(-1, 5),
        new_part_uuid=uuids,
    ),
    entries(
        EntryType.ALTER_METADATA,
        alter_version=st.integers(0, 5),
        alter_metadata=st.builds(AlterMetadata, st.booleans(), wild, wild),
    ),
    entries(EntryType.SYNC_PINNED_PART_UUIDS),
    entries(EntryType.CLONE_PART_FROM_SHARD, new_part=parts, source_shard=plain),
)


@given(any_entry)
def test_any_entry_comes_back(entry: LogEntry) -> None:
    text = entry.to_text()
    again = LogEntry.parse(text)
    assert again.to_text() == text
    assert replace(again, format_version=4) == replace(entry, format_version=4)
