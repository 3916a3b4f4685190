"""What `chsim sql` does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cli.narration import counted, narrate
from clickhouse_sim.cli.outcomes import (
    UNANSWERED,
    narrate_deduplication,
    refuse_unstored,
    show_outcome,
    told_if_unanswered,
)
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cli.writable import blaming_the_coordinator, told_why_it_waits
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.endpoint_client import EndpointClient
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.sql.insert import InsertStatement
from clickhouse_sim.sql.optimize import Optimization
from clickhouse_sim.sql.run import (
    DdlOutcome,
    answer,
    blocks_of,
    create,
    describe,
    exists,
    optimize,
    run_on_each,
    show_tables,
)
from clickhouse_sim.sql.select import Answer, Query
from clickhouse_sim.sql.show import ExistsTable, ShowTables
from clickhouse_sim.sql.statements import Question, Statement, first_words, parse_statements
from replica.commands import (
    AlterSettings,
    CreateAlias,
    CreateTable,
    CreateView,
    Definition,
    DescribeTable,
    DropTable,
    PartitionCommand,
    ShowCreateTable,
    SystemCommand,
)


def run_sql(text: str, folder: Path, replica: str | None, renderer: Renderer) -> None:
    """Read all statements, then run them in order; the first that fails ends it, and is named."""
    statements = parse_statements(text)
    cluster = Cluster(ClusterFolder(folder))
    for number, statement in enumerate(statements, start=1):
        try:
            with blaming_the_coordinator(cluster):
                _run(statement, cluster, replica, renderer)
        except BaseException:
            if len(statements) > 1:
                narrate(_which_failed(text, number))
            raise


def _which_failed(text: str, number: int) -> str:
    beginnings = first_words(text)
    left = len(beginnings) - number
    after = f"; {counted(left, 'statement')} after it did not run" if left else ""
    return f"Statement {number} of {len(beginnings)} failed ({beginnings[number - 1]}){after}."


def _run(statement: Statement, cluster: Cluster, replica: str | None, renderer: Renderer) -> None:
    if isinstance(statement, Definition | DropTable | AlterSettings):
        _define(statement, cluster, replica, renderer)
        return
    name, address = cluster.chosen_replica(replica)
    with EndpointClient(address) as client:
        if isinstance(statement, InsertStatement):
            _insert(statement, client, partial(told_why_it_waits, cluster, name, address), renderer)
        else:
            _ask(statement, name, client, renderer)


def _insert(
    statement: InsertStatement,
    client: EndpointClient,
    waiting: Callable[[], AbstractContextManager[None]],
    renderer: Renderer,
) -> None:
    """Insert block by block; nothing begins when the first does not fit."""
    blocks = blocks_of(statement, client, sys.stdin.buffer)
    first = next(blocks, None)
    if first is None:
        narrate("There were no rows to insert.")
        return
    with client.insert(statement.database, statement.table, first.schema, statement.options) as insert:
        for number, block in enumerate(chain([first], blocks)):
            try:
                with told_if_unanswered(number, block.num_rows, renderer.record), waiting():
                    outcome = insert.send(block)
            except UNANSWERED:
                narrate("Whether the rows were stored is not known; the same statement, run again, recognises them.")
                raise
            show_outcome(outcome, renderer.record)
            refuse_unstored(outcome)
    narrate_deduplication(outcome)


def _ask(
    statement: Question | Optimization | PartitionCommand | SystemCommand,
    name: str,
    client: EndpointClient,
    renderer: Renderer,
) -> None:
    match statement:
        case Query():
            _show(answer(statement, client), renderer)
        case Optimization():
            _show(optimize(statement, client), renderer)
        case ShowTables():
            _show(show_tables(statement.database, client), renderer)
        case ExistsTable():
            _show(exists(statement, client), renderer)
        case DescribeTable() | ShowCreateTable():
            _show(describe(statement, client), renderer)
        case _ if isinstance(statement, PartitionCommand):
            client.execute(statement)
            narrate(f"Done on {name}; the log brings it to the other replicas.")
        case _:
            client.execute(statement)
            narrate(f"Done on {name}; a SYSTEM statement is for one server only.")


def _show(result: Answer, renderer: Renderer) -> None:
    renderer.listing(Listing(result.columns, result.rows, null="NULL", when_empty="The answer has no rows."))


def _define(
    statement: Definition | DropTable | AlterSettings, cluster: Cluster, replica: str | None, renderer: Renderer
) -> None:
    addresses = dict([cluster.chosen_replica(replica)]) if replica else cluster.living_replicas()
    if not addresses:
        raise ClusterUnreachable("no replica is running: see chsim status, or start one with chsim start r1")
    with ExitStack() as stack:
        clients = {name: stack.enter_context(EndpointClient(address)) for name, address in addresses.items()}
        if isinstance(statement, Definition):
            outcomes = create(statement, clients)
        else:
            outcomes = run_on_each(statement, clients)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed and len(failed) == len(outcomes):
        assert failed[0].error is not None
        raise failed[0].error
    rows = [(each.replica, statement.database, statement.table, _message(each)) for each in outcomes]
    renderer.listing(Listing(("replica", "database", "table", "error"), rows))
    if failed:
        where, done = ", ".join(each.replica for each in failed), _DONE[type(statement)]
        raise ClusterError(f"{statement.table} was not {done} on {where}: {_message(failed[0])}")
    absent = [] if replica else [name for name in cluster.folder.settings().replica_names if name not in addresses]
    if absent:
        state, names = _LEFT[type(statement)], ", ".join(absent)
        narrate(f"Not serving, so {state}: {names}. Once started, repeat this with --replica.")


_DONE = {
    CreateTable: "created",
    CreateView: "created",
    CreateAlias: "created",
    DropTable: "dropped",
    AlterSettings: "altered",
}
_LEFT = {
    CreateTable: "without the table",
    CreateView: "without the view",
    CreateAlias: "without the alias",
    DropTable: "still with the table",
    AlterSettings: "still with the old settings",
}


def _message(outcome: DdlOutcome) -> str:
    return "" if outcome.error is None else outcome.error.message
