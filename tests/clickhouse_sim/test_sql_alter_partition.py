"""ALTER TABLE … PARTITION and PART, TRUNCATE TABLE, from text to commands."""

from __future__ import annotations

import pytest

from clickhouse_sim.sql.statements import parse_statements
from replica.commands import (
    AttachPartition,
    DropDetached,
    DropPart,
    DropPartition,
    ForgetPartition,
    MovePartition,
    PartitionCommand,
    ReplacePartition,
    from_json,
    to_json,
)
from replica.errors import BadArguments, NotImplementedInModel, SqlSyntaxError, UnknownSetting

D = "default"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ALTER TABLE t DROP PARTITION 202401", DropPartition(D, "t", "202401")),
        ("ALTER TABLE x.t DROP PARTITION tuple()", DropPartition("x", "t", "tuple()")),
        (
            "alter table t drop partition (1, 'a') settings alter_sync = 2",
            DropPartition(D, "t", "(1, 'a')", alter_sync=2),
        ),
        ("ALTER TABLE t DROP PARTITION ID 'x-1'", DropPartition(D, "t", "", "x-1")),
        ("ALTER TABLE t DROP PARTITION ALL", DropPartition(D, "t")),
        ("ALTER TABLE t DETACH PARTITION '2024-01-01'", DropPartition(D, "t", "'2024-01-01'", detach=True)),
        ("ALTER TABLE t DROP PART 'all_1_1_0' SETTINGS alter_sync = 0", DropPart(D, "t", "all_1_1_0", alter_sync=0)),
        ("ALTER TABLE t DETACH PART 'all_1_1_0'", DropPart(D, "t", "all_1_1_0", True)),
        ("TRUNCATE TABLE t", DropPartition(D, "t")),
        ("TRUNCATE TABLE x.t SYNC SETTINGS alter_sync = 2", DropPartition("x", "t", alter_sync=2)),
        ("ALTER TABLE t ATTACH PARTITION 1", AttachPartition(D, "t", "1")),
        ("ALTER TABLE t ATTACH PARTITION ALL", AttachPartition(D, "t")),
        ("ALTER TABLE t ATTACH PART 'all_1_1_0'", AttachPartition(D, "t", part="all_1_1_0")),
        ("ALTER TABLE t ATTACH PARTITION 1 FROM x.s", ReplacePartition(D, "t", "x", "s", "1", replace=False)),
        (
            "ALTER TABLE t REPLACE PARTITION ID '1' FROM s SETTINGS alter_sync = 2",
            ReplacePartition(D, "t", D, "s", "", "1", alter_sync=2),
        ),
        ("ALTER TABLE t MOVE PARTITION 1 TO TABLE x.d", MovePartition(D, "t", "x", "d", "1")),
        ("ALTER TABLE t FORGET PARTITION 1", ForgetPartition(D, "t", "1")),
        (
            "ALTER TABLE t DROP DETACHED PART 'x' SETTINGS allow_drop_detached = 1",
            DropDetached(D, "t", part="x", allow_drop_detached=True),
        ),
        ("ALTER TABLE t DROP DETACHED PARTITION 1", DropDetached(D, "t", "1")),
    ],
)
def test_statements(text: str, command: PartitionCommand) -> None:
    assert parse_statements(text) == [command]
    assert from_json(to_json(command)) == command


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ALTER TABLE t DROP PARTITION", SqlSyntaxError),
        ("ALTER TABLE t DROP PARTITION ID ''", BadArguments),
        ("ALTER TABLE t DROP PART ''", BadArguments),
        ("ALTER TABLE t DROP PART all_1_1_0", SqlSyntaxError),
        ("ALTER TABLE t DROP PARTITION 1, DROP PARTITION 2", SqlSyntaxError),
        ("ALTER TABLE t DROP PARTITION 1 SETTINGS alter_sync = 3", BadArguments),
        ("ALTER TABLE t DROP PARTITION 1 SETTINGS max_threads = 3", UnknownSetting),
        ("ALTER TABLE t REPLACE PARTITION 1", SqlSyntaxError),
        ("ALTER TABLE t REPLACE PARTITION ALL FROM s", NotImplementedInModel),
        ("ALTER TABLE t MOVE PARTITION 1 TO DISK 'd'", NotImplementedInModel),
        ("ALTER TABLE t FREEZE PARTITION 1", NotImplementedInModel),
        ("ALTER TABLE t DROP PARTITION 1 FROM s", SqlSyntaxError),
        ("TRUNCATE DATABASE d", NotImplementedInModel),
        ("TRUNCATE TABLE t ON CLUSTER c", NotImplementedInModel),
    ],
)
def test_what_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_statements(text)
