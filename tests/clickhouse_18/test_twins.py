"""The same script on our cluster and on ClickHouse 18.16: the same log, parts and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from benchmarks.processes import NotInstalled
from benchmarks.zookeeper import ZooKeeper
from tests.clickhouse_18.twin_script import parse_script, random_script
from tests.clickhouse_18.twins import End, OurCluster, RealCluster, TwinRun, znodes_of
from tests.clickhouse_18.version_differences import comparable

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

Compare = Callable[[str], End]


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compare]:
    """Runs a script on both, requires that they end alike, and gives what we ended with."""
    folder = tmp_path_factory.mktemp("twins")
    with ExitStack() as stack:
        try:
            zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper"))
            real = RealCluster(folder / "clickhouse", zookeeper)
        except NotInstalled as missing:
            pytest.skip(str(missing))
        ours = OurCluster(folder / "ours")
        for cluster in (real, ours):
            stack.callback(cluster.stop)
            cluster.up()
        real_znodes, our_znodes = (stack.enter_context(znodes_of(cluster)) for cluster in (real, ours))

        def both(script: str) -> End:
            steps = parse_script(script)
            end = TwinRun(ours, our_znodes).run(steps)
            require_alike(end, TwinRun(real, real_znodes).run(steps))
            return end

        yield both


def require_alike(ours: End, real: End) -> None:
    for our_outcome, real_outcome in zip(ours.outcomes, real.outcomes, strict=True):
        assert (our_outcome.step, our_outcome.error) == (real_outcome.step, real_outcome.error)
        assert comparable(our_outcome.entries) == comparable(real_outcome.entries), our_outcome.step
    assert ours.active_parts == real.active_parts
    assert ours.rows == real.rows


SCRIPTS = {
    "inserts": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES ('2018-02-01', 2, 'b'), ('2018-01-02', 3, 'c'), ('2018-03-01', 4, 'd')
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-01-03', 5, 'e')
        settle
    """,
    "duplicates": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')     # on the same replica
        r2: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')     # on the other one
        r2 insert_deduplicate=0: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        settle
    """,
    "optimize a partition": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: INSERT INTO t VALUES ('2018-02-01', 4, 'd')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
        r2: INSERT INTO t VALUES ('2018-01-01', 5, 'e')
        settle
        r2: OPTIMIZE TABLE t PARTITION 201801        # asked of the other replica
        r2: OPTIMIZE TABLE t PARTITION 201802        # one part only: nothing to do
        r1: OPTIMIZE TABLE t PARTITION 201803        # no part at all
        settle
    """,
    "optimize a partition of more parts than a merge of its own accord takes": """
        {101 inserts}
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
    """,
    "a block of many rows": """
        r1: INSERT INTO t VALUES {5000 rows}
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES {5000 rows}
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
    """,
    "optimize final": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b'), ('2018-03-01', 3, 'c')
        r2: INSERT INTO t VALUES ('2018-01-01', 4, 'd'), ('2018-02-01', 5, 'e')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801 FINAL
        settle
        r2: OPTIMIZE TABLE t FINAL                   # merged ones too, and single parts
        settle
        r1: OPTIMIZE TABLE t FINAL
        settle
    """,
    "optimize deduplicate": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-01-01', 1, 'a'), ('2018-01-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-01-02', 1, 'a'), ('2018-01-01', 2, 'c')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801 DEDUPLICATE
        settle
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-02-01', 1, 'a'), ('2018-02-01', 1, 'z')
        settle
        r1: OPTIMIZE TABLE t FINAL DEDUPLICATE
        settle
    """,
    "fetches stopped": """
        r2: SYSTEM STOP FETCHES t
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-01-01', 1, 'a')     # what it has not got it knows by the id
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: SYSTEM START FETCHES t
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
    """,
    "fetches stopped over a merge": """
        r2: SYSTEM STOP FETCHES t
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r1: OPTIMIZE TABLE t PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: SYSTEM START FETCHES t
        settle
    """,
    "queues stopped": """
        r2: SYSTEM STOP REPLICATION QUEUES t
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-02-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-02-01', 3, 'c')
        r2: SYSTEM START REPLICATION QUEUES t
        r2: SYSTEM SYNC REPLICA t
        r1: SYSTEM SYNC REPLICA t
        settle
        r1: OPTIMIZE TABLE t FINAL
        settle
    """,
    "a replica away": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        settle
        kill r2
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')     # a duplicate of what the dead one took
        r1: OPTIMIZE TABLE t PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-02-01', 4, 'd')
        start r2
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        settle
    """,
    "a table begun anew": """
        r2: SYSTEM STOP FETCHES t
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r2: SYSTEM RESTART REPLICA t                        # ends the stop as well
        settle
        r2: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r1: SYSTEM RESTART REPLICA t
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
    """,
    "a replica made anew": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES ('2018-01-01', 2, 'b'), ('2018-02-01', 3, 'c')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
        r2: DROP TABLE t
        r1: INSERT INTO t VALUES ('2018-01-01', 4, 'd')
        create r2
        r2: INSERT INTO t VALUES ('2018-01-01', 4, 'd')     # ids are the table's, not the replica's
        r2: INSERT INTO t VALUES ('2018-01-01', 5, 'e')
        settle
        r2: OPTIMIZE TABLE t FINAL
        settle
    """,
    "the first replica away": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        settle
        kill r1
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        settle
        r2: OPTIMIZE TABLE t PARTITION 201801
        settle
        start r1
        r1: INSERT INTO t VALUES ('2018-01-01', 4, 'd')
        settle
    """,
}

WITH_PARTITION_COMMANDS = {
    "drop a partition": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r1: ALTER TABLE t DROP PARTITION 201801
        settle
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')      # forgotten with its partition
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: ALTER TABLE t DROP PARTITION 201801
        r2: ALTER TABLE t DROP PARTITION 201801              # nothing left in it
        r1: ALTER TABLE t DROP PARTITION 209901              # never was
        settle
        r1: INSERT INTO t VALUES ('2018-01-01', 4, 'd')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801 FINAL
        settle
    """,
    "drop what was merged": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
        r2: ALTER TABLE t DROP PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        settle
    """,
    "drop what the other has not fetched": """
        r2: SYSTEM STOP FETCHES t
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r1: ALTER TABLE t DROP PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: SYSTEM START FETCHES t
        settle
    """,
    "drop while the other does nothing": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        settle
        r2: SYSTEM STOP REPLICATION QUEUES t
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        r1: ALTER TABLE t DROP PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        r2: SYSTEM START REPLICATION QUEUES t
        settle
    """,
    "drop while the other is away": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        settle
        kill r2
        r1: ALTER TABLE t DROP PARTITION 201801
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        start r2
        settle
    """,
    "detach and attach": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        settle
        r1: ALTER TABLE t DETACH PARTITION 201801
        settle
        r1: ALTER TABLE t ATTACH PARTITION 201801
        settle
        r2: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
    """,
    "detach, and attach what was merged on the other": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        r1: INSERT INTO t VALUES ('2018-01-01', 2, 'b')
        settle
        r1: OPTIMIZE TABLE t PARTITION 201801
        settle
        r1: INSERT INTO t VALUES ('2018-01-01', 3, 'c')
        settle
        r1: ALTER TABLE t DETACH PARTITION 201801
        settle
        r2: ALTER TABLE t ATTACH PART '201801_2_2_0'
        r2: ALTER TABLE t ATTACH PARTITION 201801
        settle
    """,
    "truncate": """
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a'), ('2018-02-01', 2, 'b')
        settle
        r1: ALTER TABLE t DROP PARTITION 201802
        settle
        r2: TRUNCATE TABLE t
        settle
        r1: INSERT INTO t VALUES ('2018-01-01', 1, 'a')
        settle
    """,
}

MANY = {
    "{101 inserts}": "\n".join(f"r1: INSERT INTO t VALUES ('2018-01-01', {key}, 'a')" for key in range(101)),
    "{5000 rows}": ", ".join(f"('2018-01-01', {key}, 'text {key * 7919 % 10_007}')" for key in range(5_000)),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_end_alike(compare: Compare, name: str) -> None:
    script = SCRIPTS[name]
    for placeholder, meaning in MANY.items():
        script = script.replace(placeholder, meaning)
    end = compare(script)
    assert len(end.active_parts) == 2
    assert end.active_parts["r1"] == end.active_parts["r2"]


@pytest.mark.parametrize("name", WITH_PARTITION_COMMANDS)
def test_partitions_that_come_and_go(compare: Compare, name: str) -> None:
    end = compare(WITH_PARTITION_COMMANDS[name])
    assert end.active_parts["r1"] == end.active_parts["r2"]


@pytest.mark.parametrize("seed", range(4))
def test_scripts_by_chance_end_alike(compare: Compare, seed: int) -> None:
    compare(random_script(seed))


@pytest.mark.parametrize("seed", range(100, 104))
def test_scripts_by_chance_with_partitions_that_go(compare: Compare, seed: int) -> None:
    compare(random_script(seed, with_drops=True))
