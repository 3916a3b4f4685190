"""Parts on the disk and which of them count."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from replica.errors import DuplicateDataPart, NoSuchDataPart
from replica.part_name import PartName
from replica.schema import TableSchema
from replica.storage.disk import LocalDisk
from replica.storage.part_codec import ArrowCodec
from replica.storage.part_files import PartImage, build_part
from replica.storage.part_store import PartState, PartStore, StoredPart
from tests.replica.cluster import definition

SCHEMA = TableSchema.from_definitions(definition().columns)


def image(*keys: int) -> PartImage:
    rows = pa.table({"k": keys, "v": [str(key).encode() for key in keys]}, schema=SCHEMA.arrow_schema)
    return build_part(rows, SCHEMA, ArrowCodec())


def name(text: str) -> PartName:
    return PartName.parse(text)


async def loaded(folder: Path) -> PartStore:
    store = PartStore(LocalDisk(folder), ArrowCodec(), "t", fsync=False)
    await store.load(7.0)
    return store


async def published(store: PartStore, text: str, *, active: bool = True) -> StoredPart:
    part = await store.publish(await store.write_temporary("tmp_insert_", image(1)), name(text), 1.0)
    if active:
        store.activate(part, 0)
    return part


def states(store: PartStore) -> dict[str, PartState]:
    return {str(part.name): part.state for part in store.parts()}


async def test_a_part_that_becomes_active_outdates_those_it_covers(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    for text in ("0_0_0_0", "0_1_1_0", "0_5_5_0"):
        await published(store, text)
    covering = await published(store, "0_0_1_1", active=False)
    assert [str(part.name) for part in store.active_parts()] == ["0_0_0_0", "0_1_1_0", "0_5_5_0"]
    store.activate(covering, 7.0)
    assert [str(part.name) for part in store.outdated_before(7.0)] == ["0_0_0_0", "0_1_1_0"]
    assert store.outdated_before(6.9) == []
    assert [str(part.name) for part in store.active_parts()] == ["0_0_1_1", "0_5_5_0"]
    assert states(store)["0_0_0_0"] is states(store)["0_1_1_0"] is PartState.OUTDATED


async def test_a_part_below_an_active_one_is_outdated_at_once(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    await published(store, "0_0_1_1")
    late = await published(store, "0_1_1_0")
    assert late.state is PartState.OUTDATED
    found = store.active_containing(late.name)
    assert found is not None
    assert str(found.name) == "0_0_1_1"


async def test_after_a_start_coverers_are_active_and_the_covered_outdated(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    for text in ("0_0_0_0", "0_0_3_1", "0_0_5_2", "0_0_5_2_8", "0_6_6_0"):
        await published(store, text, active=False)
    again = await loaded(tmp_path)
    assert states(again) == {
        "0_0_0_0": PartState.OUTDATED,
        "0_0_3_1": PartState.OUTDATED,
        "0_0_5_2": PartState.OUTDATED,
        "0_0_5_2_8": PartState.ACTIVE,
        "0_6_6_0": PartState.ACTIVE,
    }


async def test_a_start_removes_what_is_temporary_and_sets_aside_what_is_broken(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    await published(store, "0_0_0_0")
    await published(store, "0_1_1_0")
    for temporary in ("tmp_insert_3", "tmp-fetch_0", "tmp_withdrawn_1"):
        (tmp_path / "t" / temporary).mkdir()
    data = tmp_path / "t" / "0_1_1_0" / "data.arrow"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    again = await loaded(tmp_path)
    assert states(again) == {"0_0_0_0": PartState.ACTIVE}
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["0_0_0_0", "detached"]
    assert [path.name for path in (tmp_path / "t" / "detached").iterdir()] == ["broken-on-start_0_1_1_0"]


async def test_detached_parts_of_one_name_stay_side_by_side(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    for _ in range(3):
        part = await published(store, "0_0_0_0")
        await store.detach(part, "ignored")
        assert (store.parts(), store.active_parts(), store.get(part.name)) == ([], [], None)
    detached = sorted(path.name for path in (tmp_path / "t" / "detached").iterdir())
    assert detached == ["ignored_0_0_0_0", "ignored_0_0_0_0_try1", "ignored_0_0_0_0_try2"]


async def test_what_is_dropped_counts_no_more_but_nobody_takes_a_part_from_a_commit_that_is_not_decided(
    tmp_path: Path,
) -> None:
    store = await loaded(tmp_path)
    for text in ("0_0_0_0", "0_9_9_0", "1_0_0_0"):
        await published(store, text)
    await published(store, "0_1_1_0", active=False)
    store.drop(PartName.drop_range("0", 5))
    assert states(store) == {
        "0_0_0_0": PartState.OUTDATED,
        "0_1_1_0": PartState.PRE_ACTIVE,
        "0_9_9_0": PartState.ACTIVE,
        "1_0_0_0": PartState.ACTIVE,
    }
    assert store.outdated_before(1e9) == []
    assert [str(part.name) for part in await store.delete_dropped(PartName.drop_range("0", 5))] == ["0_0_0_0"]
    assert [str(part.name) for part in store.parts()] == ["0_1_1_0", "0_9_9_0", "1_0_0_0"]
    again = await loaded(tmp_path)
    assert [str(part.name) for part in again.parts()] == ["0_1_1_0", "0_9_9_0", "1_0_0_0"]


async def test_two_that_delete_what_was_dropped_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    for text in ("0_0_0_0", "0_1_1_0"):
        await published(store, text)
    store.drop(PartName.drop_range("0", 5))
    wide, narrow = PartName.drop_range("0", 5), PartName.drop_range("0", 0)
    first, second = await asyncio.gather(store.delete_dropped(wide), store.delete_dropped(narrow))
    assert (len(first), len(second)) == (2, 0)


async def test_a_copy_in_detached_is_made_once(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    part = await published(store, "0_0_0_0")
    for _ in range(2):
        await store.copy_to_detached(part)
    assert [each.folder for each in await store.detached.names()] == ["0_0_0_0"]
    assert (await store.detached.files("0_0_0_0")) == await store.files(part.name)


async def test_what_only_a_detached_part_covered_counts_again(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    for text in ("0_0_0_0", "0_1_1_0", "0_0_1_1", "0_2_2_0", "0_0_2_2"):
        await published(store, text)
    for detached, active in (("0_0_2_2", ["0_0_1_1", "0_2_2_0"]), ("0_0_1_1", ["0_0_0_0", "0_1_1_0", "0_2_2_0"])):
        part = store.get(name(detached))
        assert part is not None
        await store.detach(part, "broken")
        assert [str(each.name) for each in store.active_parts()] == active
        assert [text for text, state in states(store).items() if state is PartState.ACTIVE] == active


async def test_of_a_part_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    part = await published(store, "0_0_0_0")
    (tmp_path / "t" / "0_0_0_0").rename(tmp_path / "elsewhere")
    await store.detach(part, "broken")
    assert store.parts() == []


async def test_a_detachment_is_carried_through_by_a_cancellation(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    part = await published(store, "0_0_0_0")
    detaching = asyncio.create_task(store.detach(part, "broken"))
    await asyncio.sleep(0)
    detaching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await detaching
    assert [path.name for path in (tmp_path / "t" / "detached").iterdir()] == ["broken_0_0_0_0"]


async def test_a_name_is_given_once_and_is_free_again_after_a_withdrawal(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    part = await published(store, "0_0_0_0", active=False)
    with pytest.raises(DuplicateDataPart):
        await published(store, "0_0_0_0")
    temporary = await store.withdraw(part, image(1))
    assert store.parts() == []
    await store.publish(temporary, name("0_1_1_0"), 1.0)
    await published(store, "0_0_0_0")
    assert sorted(states(store)) == ["0_0_0_0", "0_1_1_0"]


async def test_files_are_served_of_parts_in_every_state_and_of_nothing_else(tmp_path: Path) -> None:
    store = await loaded(tmp_path)
    await published(store, "0_0_0_0")
    await published(store, "0_0_1_1")
    await published(store, "0_7_7_0", active=False)
    for text in ("0_0_0_0", "0_0_1_1", "0_7_7_0"):
        assert await store.files(name(text)) == image(1).files
    (tmp_path / "t" / "0_8_8_0").mkdir()
    (tmp_path / "t" / "0_7_7_0").rename(tmp_path / "t" / "tmp_withdrawn_9")
    for text in ("0_8_8_0", "0_9_9_0", "0_7_7_0"):
        with pytest.raises(NoSuchDataPart, match=text):
            await store.files(name(text))
