"""The tape: stable, uniform, remembered, replayed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.simulation.tape import Draw, Tape, draws_from_json

draws = st.lists(
    st.tuples(st.sampled_from(["a", "b", "é"]), st.integers(2, 2000), st.integers(0)).map(
        lambda draw: Draw(draw[0], draw[1], draw[2] % draw[1])
    )
)


def test_a_seed_means_the_same_for_ever() -> None:
    tape = Tape(17)
    assert [tape.draw("x", 1000) for _ in range(10)] == [16, 69, 490, 835, 39, 196, 145, 949, 121, 288]


def test_seeds_differ() -> None:
    firsts = {tuple(tape.draw("x", 1000) for _ in range(5)) for tape in map(Tape, range(-50, 50))}
    assert len(firsts) == 100


def test_draws_are_uniform() -> None:
    tape = Tape(1)
    counts = Counter(tape.choose("letter", "abc") for _ in range(3000))
    assert all(900 < counts[letter] < 1100 for letter in "abc")


def test_a_choice_among_one_leaves_no_mark_and_moves_nothing() -> None:
    tape, other = Tape(5), Tape(5)
    assert tape.choose("only", ["x"]) == "x"
    assert tape.draw("next", 1000) == other.draw("next", 1000)
    assert len(tape) == 1


def test_a_choice_among_none_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to choose from for 'what'"):
        Tape(5).choose("what", [])


def test_the_observer_hears_of_every_draw() -> None:
    tape = Tape(3)
    heard: list[tuple[str, int, int]] = []
    tape.observer = lambda *draw: heard.append(draw)
    for options in range(1, 20):
        tape.draw(f"{options} options", options)
    assert heard == tape.draws
    assert len(heard) == len(tape) == 18


@given(draws)
def test_a_recorded_tape_gives_its_draws_back_and_then_zeros(recorded: list[Draw]) -> None:
    tape = Tape.replaying(recorded)
    assert [tape.draw(draw.label, draw.options) for draw in recorded] == [draw.taken for draw in recorded]
    assert tape.draw("more", 10) == 0
    assert tape.first_mismatch is None
    assert tape.draws == [*recorded, Draw("more", 10, 0)]


@given(draws)
def test_a_tape_crosses_as_json(recorded: list[Draw]) -> None:
    tape = Tape.replaying(recorded)
    for draw in recorded:
        tape.draw(draw.label, draw.options)
    assert draws_from_json(tape.to_json()) == recorded


def test_a_mismatch_is_noted_and_read_modulo() -> None:
    recorded = [Draw("a", 10, 7), Draw("a", 10, 7), Draw("b", 10, 9)]
    tape = Tape.replaying(recorded)
    assert [tape.draw("a", 10), tape.draw("a", 4), tape.draw("c", 10)] == [7, 3, 9]
    assert tape.first_mismatch == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"labels":["a"],"draws":[0,2]}',
        '{"labels":[],"draws":[0,2,1]}',
        '{"labels":["a"],"draws":[0,2,2]}',
    ],
)
def test_what_is_no_tape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a recorded tape"):
        draws_from_json(text)
