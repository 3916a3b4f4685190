"""How a history ended, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from clickhouse_sim.simulation.errors import ScenarioError
from clickhouse_sim.simulation.history import DidNotConverge, Plan, Report, simulate
from clickhouse_sim.simulation.loop import SimulationError
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.tape import Tape

NO_UNHANDLED_EXCEPTION = "no unhandled exception"


class Ending(StrEnum):
    """The four ways in which a history ends."""

    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    DID_NOT_CONVERGE = "did not converge"

    @property
    def exit_code(self) -> int:
        return list(Ending).index(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`property` and `message` say what is wrong, empty if nothing is; `report` is there if the history ended."""

    ending: Ending
    property: str = ""
    message: str = ""
    report: Report | None = None

    def is_same_failure(self, other: Verdict) -> bool:
        """Whether both fail in the same way: the same property, whatever the evidence."""
        return self.ending is not Ending.HELD and (self.ending, self.property) == (other.ending, other.property)


def judge(seed: int, plan: Plan, *, tape: Tape | None = None, recording: Recording | None = None) -> Verdict:
    """Run the history of a seed, or of the tape, and say how it ended. Raises nothing that the history raises."""
    return judged(lambda: simulate(seed, plan, tape=tape, recording=recording), recording)


def judged(play: Callable[[], Report | None], recording: Recording | None) -> Verdict:
    """Play, and say how it ended."""
    try:
        verdict = Verdict(Ending.HELD, report=play())
    except ScenarioError:
        raise
    except Exception as problem:
        verdict = _verdict_on(_innermost(problem))
    if recording is not None and verdict.ending is not Ending.HELD:
        recording.break_property(verdict.property or verdict.ending, verdict.message)
    return verdict


def _verdict_on(problem: Exception) -> Verdict:
    match problem:
        case PropertyBroken():
            return Verdict(Ending.BROKEN, problem.property, str(problem))
        case DidNotConverge():
            return Verdict(Ending.DID_NOT_CONVERGE, message=str(problem))
        case SimulationError():
            return Verdict(Ending.UNDECIDED, message=f"{type(problem).__name__}: {problem}")
    return Verdict(Ending.BROKEN, NO_UNHANDLED_EXCEPTION, f"{type(problem).__name__}: {problem}")


def _innermost(problem: Exception) -> Exception:
    """The first exception of a group, for a history has one that counts."""
    while isinstance(problem, ExceptionGroup):
        problem = problem.exceptions[0]
    return problem
