"""What the commands of `simulate` do: play, record, and say how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from clickhouse_sim.cli.narration import counted, narrate
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.simulation.batch import Judged, judge_seeds, silence
from clickhouse_sim.simulation.errors import ScenarioError
from clickhouse_sim.simulation.history import PLANS
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.run_folder import RecordedRun, read_run, write_run
from clickhouse_sim.simulation.scenario import Scenario
from clickhouse_sim.simulation.scenario_play import play_scenario
from clickhouse_sim.simulation.shrink import Shrinker
from clickhouse_sim.simulation.standard_table import TABLE
from clickhouse_sim.simulation.tape import Draw, Tape
from clickhouse_sim.simulation.trace import first_difference
from clickhouse_sim.simulation.verdict import Ending, Verdict, judge, judged


def one_seed(seed: int, plan_name: str, runs: Path, renderer: Renderer) -> int:
    """Play and record one history; the exit code."""
    verdict, folder = _record(seed, plan_name, Tape(seed), runs)
    renderer.record(_values(seed, verdict, folder), _sentence(f"seed {seed}", verdict))
    _tell_more(verdict, folder)
    return verdict.ending.exit_code


def many_seeds(seeds: range, plan_name: str, jobs: int, runs: Path, renderer: Renderer) -> int:
    """Play many histories, record those that fail; the exit code is that of the worst."""
    failures: list[Judged] = []
    begun = time.monotonic()
    with renderer.records() as tell:
        for number, each in enumerate(judge_seeds(seeds, plan_name, jobs), start=1):
            if each.verdict.ending is not Ending.HELD:
                failures.append(each)
                _, folder = _record(each.seed, plan_name, Tape(each.seed), runs)
                tell(_values(each.seed, each.verdict, folder), _sentence(f"seed {each.seed}", each.verdict))
                narrate(f"  chsim simulate replay {folder}")
            if number % 50 == 0:
                rate = number / (time.monotonic() - begun)
                narrate(f"{number} of {len(seeds)} seeds, {len(failures)} failed, {rate:.1f} a second")
    narrate(f"{counted(len(seeds), 'seed')}, {len(failures)} failed")
    return _worst(each.verdict for each in failures)


def scenario(file: Path, accept: bool, runs: Path) -> int:
    """Play a scripted story and print its transcript; the exit code. Raises ScenarioError, OSError."""
    story = Scenario.parse(_text_of(file))
    silence()
    recording, tape = _recording(), Tape.replaying(())
    transcript: list[str] = []

    def tell(line: str) -> None:
        transcript.append(line)
        click.echo(line)

    verdict = judged(lambda: play_scenario(story, tell, recording, tape), recording)
    golden = file.with_suffix(".golden")
    if accept and verdict.ending is Ending.HELD:
        golden.write_text("".join(f"{line}\n" for line in transcript), "utf-8")
        narrate(f"Written: {golden}")
    elif verdict.ending is Ending.HELD and golden.exists():
        verdict = _compared(transcript, golden.read_text("utf-8").splitlines(), golden)
    folder = _new_folder(runs, file.stem)
    write_run(folder, story.title, None, tape, verdict, recording)
    narrate(_sentence(story.title, verdict))
    narrate(f"Story: {folder / 'story.html'}   events: {folder / 'events.log'}")
    return verdict.ending.exit_code


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as problem:
        raise ScenarioError(f"{file} is no text: {problem}") from problem


def _compared(transcript: list[str], golden: list[str], file: Path) -> Verdict:
    difference = first_difference(transcript, golden)
    if difference is None:
        return Verdict(Ending.HELD)
    where = f"line {difference.position + 1} of {file}"
    message = f"{where} is {difference.other!r}, the transcript has {difference.one!r}"
    return Verdict(Ending.BROKEN, "the transcript is the golden one", message)


def replay(folder: Path, runs: Path, renderer: Renderer) -> int:
    """Play a run from its tape; undecided where the tape does not fit the program any more."""
    run = read_run(folder)
    tape = Tape.replaying(run.draws)
    recording = _recording()
    verdict = judge(run.seed, run.plan, tape=tape, recording=recording)
    if tape.first_mismatch is not None:
        verdict = Verdict(
            Ending.UNDECIDED,
            message=f"the tape does not fit: draw {tape.first_mismatch} is another one now. The program has changed "
            "since the run was recorded; play the seed anew",
        )
    elif recording.trace_hash() != run.trace_hash:
        verdict = Verdict(Ending.UNDECIDED, message="the draws are the same, what happened is not")
    renderer.record(_values(run.seed, verdict, folder), _sentence(f"seed {run.seed}", verdict))
    return verdict.ending.exit_code


def shrink(folder: Path, histories: int, runs: Path, renderer: Renderer) -> int:
    """Shrink the tape of a run that failed, and record the simpler one."""
    run = read_run(folder)
    if run.verdict.ending is Ending.HELD:
        narrate("Nothing is to shrink: all properties held in this run.")
        return Ending.HELD.exit_code
    silence()
    shrinker = Shrinker(run.draws, lambda draws: _fails(run, draws), histories)
    before = shrinker.cost
    shrinker.run()
    verdict, shrunk = _record(run.seed, run.plan_name, Tape.replaying(shrinker.best), runs)
    after = shrinker.cost
    narrate(f"{before[0]:,} draws that are not plain before, {after[0]:,} after {shrinker.played} histories")
    renderer.record(_values(run.seed, verdict, shrunk), _sentence(f"seed {run.seed}", verdict))
    _tell_more(verdict, shrunk)
    return verdict.ending.exit_code


def _fails(run: RecordedRun, draws: Sequence[Draw]) -> bool:
    return judge(run.seed, run.plan, tape=Tape.replaying(draws)).is_same_failure(run.verdict)


def _record(seed: int, plan_name: str, tape: Tape, runs: Path) -> tuple[Verdict, Path]:
    silence()
    recording = _recording()
    verdict = judge(seed, PLANS[plan_name], tape=tape, recording=recording)
    folder = _new_folder(runs, seed)
    write_run(folder, f"seed {seed}", (seed, plan_name), tape, verdict, recording)
    return verdict, folder


def _recording() -> Recording:
    return Recording(TABLE)


def _new_folder(runs: Path, what: int | str) -> Path:
    """A folder of its own also for two runs of one second."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"
    taken = 1
    while (folder := runs / (name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return folder


def _worst(verdicts: Iterable[Verdict]) -> int:
    """A broken property counts most, then what did not converge, then what is undecided."""
    order = (Ending.BROKEN, Ending.DID_NOT_CONVERGE, Ending.UNDECIDED)
    endings = {verdict.ending for verdict in verdicts}
    return next((ending.exit_code for ending in order if ending in endings), 0)


def _values(seed: int, verdict: Verdict, folder: Path) -> dict[str, object]:
    return {
        "seed": seed,
        "ending": str(verdict.ending),
        "property": verdict.property,
        "message": verdict.message,
        "run": str(folder),
    }


def _sentence(what: str, verdict: Verdict) -> str:
    about = ": ".join(filter(None, (verdict.property, verdict.message)))
    return f"{what}: {verdict.ending}" + (f"\n  {about}" if about else "")


def _tell_more(verdict: Verdict, folder: Path) -> None:
    report = verdict.report
    if report is not None:
        faults = ", ".join(f"{count} × {kind}" for kind, count in report.faults.items()) or "none"
        narrate(f"{report.simulated_seconds:,.0f} simulated seconds; faults: {faults}")
        narrate(f"{counted(len(report.acknowledged), 'block')} acknowledged")
    narrate(f"Story: {folder / 'story.html'}   events: {folder / 'events.log'}")
    narrate(f"Replay: chsim simulate replay {folder}")
