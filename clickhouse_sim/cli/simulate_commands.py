"""`simulate`: histories of the replica code on a virtual clock, under faults that a seed draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clickhouse_sim.cli.options import output_format

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer

PLAN_NAMES = ("standard", "forgetful", "destructive", "tree-lost", "dropping")
_ENDINGS = "Exit codes: 0 all properties held, 1 a property broken, 2 undecided, 3 did not converge after healing."


class _Seeds(click.ParamType[range]):
    name = "first..last"

    def convert(self, value: str | range, param: click.Parameter | None, context: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, dots, last = value.partition("..")
        if not (dots and first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            self.fail(f"{value!r} are no seeds; write 1..2000.", param, context)
        return range(int(first), int(last) + 1)


_run_argument = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
_runs_option = click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where the folders of runs are written.",
)


@click.group(invoke_without_command=True, epilog=_ENDINGS)
@click.option("--seed", type=click.IntRange(0), help="Play one history.")
@click.option("--seeds", type=_Seeds(), help="Play many; the folders of those that fail are written.")
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play a scripted story; where a .golden file stands beside it, the transcript must be that.",
)
@click.option("--accept", is_flag=True, help="Write the transcript of the scenario beside it as its .golden file.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes for --seeds.")
@click.option(
    "--plan", type=click.Choice(PLAN_NAMES), default="standard", show_default=True, help="How much happens."
)
@_runs_option
@output_format
@click.pass_context
def simulate(
    context: click.Context,
    seed: int | None,
    seeds: range | None,
    scenario: Path | None,
    accept: bool,
    jobs: int,
    plan: str,
    runs: Path,
    renderer: Renderer,
) -> None:
    """Play histories of the real replica code under drawn faults, and check what must hold.

    \b
    chsim simulate --seed 42
    chsim simulate --seeds 1..2000 --jobs 2
    chsim simulate --scenario lost-reply.txt
    chsim simulate replay runs/latest
    chsim simulate shrink runs/latest
    """
    if context.invoked_subcommand is not None:
        return
    if [seed, seeds, scenario].count(None) != 2:
        raise click.UsageError("One of --seed, --seeds and --scenario, or one of the commands replay and shrink.")
    if accept and scenario is None:
        raise click.UsageError("--accept goes with --scenario.")
    from clickhouse_sim.cli import run_simulation

    if seed is not None:
        context.exit(run_simulation.one_seed(seed, plan, runs, renderer))
    if scenario is not None:
        context.exit(run_simulation.scenario(scenario, accept, runs))
    assert seeds is not None
    context.exit(run_simulation.many_seeds(seeds, plan, jobs, runs, renderer))


@simulate.command(epilog=_ENDINGS)
@_run_argument
@_runs_option
@output_format
@click.pass_context
def replay(context: click.Context, run: Path, runs: Path, renderer: Renderer) -> None:
    """Play a recorded run again, from its tape, and say whether everything happened as it did.

    \b
    chsim simulate replay runs/latest
    """
    from clickhouse_sim.cli import run_simulation

    context.exit(run_simulation.replay(run, runs, renderer))


@simulate.command(epilog=_ENDINGS)
@_run_argument
@click.option("--histories", type=click.IntRange(1), default=400, show_default=True, help="Play at most so many.")
@_runs_option
@output_format
@click.pass_context
def shrink(context: click.Context, run: Path, histories: int, runs: Path, renderer: Renderer) -> None:
    """Find a simpler tape with the same failure, and record it.

    \b
    chsim simulate shrink runs/latest
    """
    from clickhouse_sim.cli import run_simulation

    context.exit(run_simulation.shrink(run, histories, runs, renderer))
