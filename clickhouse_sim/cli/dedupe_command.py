"""`dedupe`: the identity gateway as a Unix filter."""

from __future__ import annotations

from pathlib import Path

import click

from clickhouse_sim.ingest.gateway.windows import PRESETS

_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Named windows. Default: standard, 180 s.")
@click.option("--window", type=_SECONDS, metavar="S", help="Seconds for which an identity is remembered.")
@click.option("--max-window", type=_SECONDS, metavar="S", help="The longest window; goes with --window.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="An SQLite file that remembers identities for ever; several processes may share it.",
)
@click.option("--capacity", type=click.IntRange(min=1), metavar="N", help="How many the ledger holds; goes with it.")
@click.option("--stats", is_flag=True, help="Counts on stderr at the end, as one JSON object.")
def dedupe(
    file: Path,
    preset: str | None,
    window: float | None,
    max_window: float | None,
    ledger: Path | None,
    capacity: int | None,
    stats: bool,
) -> None:
    """Pass JSON lines on, each identity once. FILE may be - for standard input.

    \b
    tail -f events.jsonl | chsim dedupe - --preset heavy-duplicates
    chsim dedupe events.jsonl --ledger seen.sqlite --capacity 5000000 --stats > fresh.jsonl

    The identity of an event is its `id`, if that is a non-empty string, or else its `nodeId` and `sequence`; an event
    without one is passed on. Lines go out as they came in. A line that is no JSON object ends it, after the lines
    before it were passed on.

    Exit codes: 0 done, 1 a line that is no JSON object, a ledger that is full or cannot be used, 2 wrong usage,
    130 Ctrl-C.
    """
    from clickhouse_sim.cli.run_dedupe import run_dedupe
    from clickhouse_sim.ingest.gateway import DedupeGateway, SqliteIdentityLedger

    if preset is not None and (window, max_window) != (None, None):
        raise click.UsageError("Give --preset, or --window and --max-window, but not both.")
    if (window is None) != (max_window is None):
        raise click.UsageError("--window and --max-window go together.")
    if (ledger is None) != (capacity is None):
        raise click.UsageError("--ledger and --capacity go together.")
    durable = None if ledger is None or capacity is None else SqliteIdentityLedger(ledger, capacity)
    gateway = DedupeGateway(
        preset, sliding_window_seconds=window, max_sliding_window_seconds=max_window, identity_ledger=durable
    )
    run_dedupe(file, gateway, durable, tell_stats=stats)
