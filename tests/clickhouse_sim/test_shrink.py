"""The shrinker, on failures that can be told from the draws alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from clickhouse_sim.simulation.shrink import Shrinker
from clickhouse_sim.simulation.tape import Draw


def tape(length: int, seed: int = 0) -> list[Draw]:
    drawn = random.Random(seed)
    return [Draw(drawn.choice("abc"), 10, drawn.randrange(10)) for _ in range(length)]


def test_what_does_not_matter_becomes_plain_and_what_matters_stays() -> None:
    def fails(draws: Sequence[Draw]) -> bool:
        return sum(draw.taken == 7 for draw in draws) >= 2

    draws = tape(400)
    shrinker = Shrinker(draws, fails, budget=2000)
    shrinker.run()
    assert fails(shrinker.best)
    assert [draw.taken for draw in shrinker.best if draw.taken] == [7, 7]
    assert len(shrinker.best) == 2


def test_the_budget_is_kept_and_the_best_so_far_still_fails() -> None:
    def fails(draws: Sequence[Draw]) -> bool:
        return any(draw.taken == 3 for draw in draws)

    shrinker = Shrinker(tape(400), fails, budget=3)
    shrinker.run()
    assert shrinker.played == 3
    assert fails(shrinker.best)


def test_a_failure_without_any_draw_shrinks_to_nothing() -> None:
    shrinker = Shrinker(tape(50), lambda draws: True, budget=100)
    shrinker.run()
    assert shrinker.best == []


def test_a_label_that_does_not_matter_goes_at_once() -> None:
    def fails(draws: Sequence[Draw]) -> bool:
        return any(draw.label == "a" and draw.taken == 5 for draw in draws)

    shrinker = Shrinker(tape(200), fails, budget=3)
    shrinker.run()
    assert {draw.label for draw in shrinker.best if draw.taken} == {"a"}
