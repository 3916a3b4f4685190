"""How a command ends that could not do what it was asked: one sentence and an exit code."""

from __future__ import annotations

import click

from clickhouse_sim.cli.narration import complain

FAILED = 1
USAGE = 2
UNREACHABLE = 69
INTERRUPTED = 130
"""As a shell says of what ended by Ctrl-C."""


class Failure:
    """What to say, and the exit code."""

    __slots__ = ("exit_code", "sentence")

    def __init__(self, sentence: str, exit_code: int) -> None:
        self.sentence = sentence
        self.exit_code = exit_code


def failure_of(problem: Exception) -> Failure | None:
    """What to say of an expected problem; None for one that is a fault of the program."""
    from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable, UnknownMember
    from clickhouse_sim.simulation.errors import NotARun, ScenarioError
    from coordinator.api import CoordinationError, CoordinatorUnreachable, SessionLost
    from replica.errors import ClickHouseError, NetworkError

    match problem:
        case NetworkError():
            return Failure(f"{problem.message} ({problem.name})", UNREACHABLE)
        case ClickHouseError():
            return Failure(f"{problem.message} ({problem.name})", FAILED)
        case ClusterUnreachable() | CoordinatorUnreachable() | SessionLost():
            return Failure(str(problem), UNREACHABLE)
        case UnknownMember():
            return Failure(str(problem), USAGE)
        case NotARun() | ScenarioError():
            return Failure(str(problem), USAGE)
        case ClusterError() | CoordinationError():
            return Failure(str(problem), FAILED)
        case OSError():
            where = f"{problem.filename}: " if problem.filename else ""
            return Failure(f"{where}{problem.strerror or problem}", FAILED)
    return None


class PoliteGroup(click.Group):
    """A group of commands that end expected problems politely, with one sentence, and Ctrl-C without any."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            context.exit(INTERRUPTED)
        except Exception as problem:
            failure = failure_of(problem)
            if failure is None:
                raise
            complain(failure.sentence)
            context.exit(failure.exit_code)
