"""What must hold of identity gateways, judged by what came out of them and not by what they remember."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from clickhouse_sim.ingest.gateway import DedupeGatewayStats, DedupeIdentityLedgerCapacityError, Routed
from clickhouse_sim.simulation.properties.broken import PropertyBroken

ANSWERED = "every event is delivered or refused"
NOT_LOST = "nothing is lost but by a crash between claim and effect"
ONCE_A_WINDOW = "an identity is accepted once within the window"
DROP_REMEMBERED = "only what is remembered is dropped, and for no longer than window and interval"
ONCE_A_LEDGER = "an identity is accepted once on a ledger"
DROP_CLAIMED = "only what was claimed is dropped"
CAPACITY = "a ledger keeps to its capacity and forgets nothing"
ANONYMOUS = "what has no identity passes"
COUNTED = "statistics count each decision"
EMPTIES = "memory empties past the window"


class Decision(NamedTuple):
    """What a gateway, in one life of its process, said of an event, at which reading of its clock in milliseconds."""

    life: str
    number: int
    reading: float
    accepted: bool


@dataclass
class DedupeRecord:
    """All that happened, in its order. Events are known by number; no two with an identity share it.

    `effects` counts how often an event reached ordering through a gateway, `bypassed` how often around it.
    `failed_claims` ended in an error that is none of capacity: taken or not.
    """

    made: set[int] = field(default_factory=set)
    without_identity: set[int] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    effects: Counter[int] = field(default_factory=Counter)
    bypassed: Counter[int] = field(default_factory=Counter)
    acknowledged: set[int] = field(default_factory=set)
    failed_claims: set[int] = field(default_factory=set)
    refusals: dict[int, tuple[int, int]] = field(default_factory=dict)
    crashed: set[str] = field(default_factory=set)

    def decided(self, life: str, number: int, reading: float, routed: Routed) -> None:
        """Note a decision, if the gateway was asked for one."""
        if routed.result is not None:
            self.decisions.append(Decision(life, number, reading, routed.result.accepted))

    def ordered(self, number: int, *, filtered: bool) -> None:
        """Note an effect."""
        (self.effects if filtered else self.bypassed)[number] += 1

    def refused(self, number: int, full: DedupeIdentityLedgerCapacityError) -> None:
        """Note that a ledger had no room for an event."""
        self.refusals[number] = (full.stored_identities, full.max_identities)

    def accepted(self) -> set[int]:
        """The events that some gateway accepted."""
        return {each.number for each in self.decisions if each.accepted}

    def lost(self) -> list[int]:
        """The events that are acknowledged and never reached ordering."""
        return sorted(self.acknowledged - set(self.effects) - set(self.bypassed))


def check_record(record: DedupeRecord, window_seconds: float, interval_seconds: float, capacity: int | None) -> None:
    """Everything that the documents promise of gateways with this window and clean-up interval. With a `capacity`,
    they share a ledger. Raises PropertyBroken."""
    check_everything_is_answered(record)
    check_nothing_is_lost_but_by_a_crash(record)
    lives = sorted({each.life for each in record.decisions})
    for life in lives:
        decisions = [each for each in record.decisions if each.life == life and not _is_anonymous(record, each)]
        check_never_twice_within_the_window(decisions, window_seconds * 1000)
        if capacity is None:
            check_every_drop_is_remembered(decisions, (window_seconds + interval_seconds) * 1000)
    if capacity is not None:
        check_never_twice_on_a_ledger(record)
        check_every_drop_is_known_to_the_ledger(record)
        check_the_ledger_keeps_to_its_capacity(record, capacity)
    check_nothing_without_identity_is_dropped(record)


def check_everything_is_answered(record: DedupeRecord) -> None:
    """Every event was delivered, or refused for want of room."""
    if unanswered := record.made - record.acknowledged - set(record.refusals):
        raise PropertyBroken(ANSWERED, f"neither delivered nor refused: {sorted(unanswered)[:5]}")


def check_nothing_is_lost_but_by_a_crash(record: DedupeRecord) -> None:
    """What is acknowledged reached ordering, unless a gateway died after its claim, or a claim ended in an error."""
    died_with = {each.number for each in record.decisions if each.accepted and each.life in record.crashed}
    if lost := [each for each in record.lost() if each not in died_with | record.failed_claims]:
        raise PropertyBroken(
            NOT_LOST, f"acknowledged and never ordered, though nothing crashed in between: {lost[:5]}"
        )


def check_never_twice_within_the_window(decisions: list[Decision], window: float) -> None:
    """A life accepts an identity again only when its clock has shown more than the window since."""
    accepted_at: dict[int, float] = {}
    latest_since: dict[int, float] = {}
    for each in decisions:
        for number in latest_since:
            latest_since[number] = max(latest_since[number], each.reading)
        if not each.accepted:
            continue
        if each.number in accepted_at and latest_since[each.number] - accepted_at[each.number] <= window:
            raise PropertyBroken(
                ONCE_A_WINDOW, f"{each.life}: {each.number} accepted twice within the window, at {each.reading}"
            )
        accepted_at[each.number] = latest_since[each.number] = each.reading


def check_every_drop_is_remembered(decisions: list[Decision], longest: float) -> None:
    """A life drops only what it accepted itself, less than window and interval ago."""
    accepted_at: dict[int, float] = {}
    for each in decisions:
        if each.accepted:
            accepted_at[each.number] = each.reading
        elif each.number not in accepted_at:
            raise PropertyBroken(DROP_REMEMBERED, f"{each.life}: {each.number} dropped, though it was never accepted")
        elif (age := each.reading - accepted_at[each.number]) >= longest:
            raise PropertyBroken(
                DROP_REMEMBERED, f"{each.life}: {each.number} dropped {age:g} ms after it was accepted"
            )


def check_never_twice_on_a_ledger(record: DedupeRecord) -> None:
    """Gateways that share a ledger accept an identity once, all together and through all their lives."""
    accepted = Counter(each.number for each in record.decisions if each.accepted and not _is_anonymous(record, each))
    if twice := _above_one(accepted):
        raise PropertyBroken(ONCE_A_LEDGER, f"accepted more than once on one ledger: {twice[:5]}")
    effects = Counter({number: n for number, n in record.effects.items() if number not in record.without_identity})
    if twice := _above_one(effects):
        raise PropertyBroken(ONCE_A_LEDGER, f"ordered more than once through a ledger: {twice[:5]}")


def check_every_drop_is_known_to_the_ledger(record: DedupeRecord) -> None:
    """What is dropped was accepted by somebody before, or its claim ended in an error."""
    accepted: set[int] = set()
    for each in record.decisions:
        if each.accepted:
            accepted.add(each.number)
        elif each.number not in accepted | record.failed_claims:
            raise PropertyBroken(DROP_CLAIMED, f"{each.life}: {each.number} dropped, though nobody ever claimed it")


def check_the_ledger_keeps_to_its_capacity(record: DedupeRecord, capacity: int) -> None:
    """No more identities are accepted than there is room for, and none refused while there is some or once known."""
    accepted = record.accepted() - record.without_identity
    if len(accepted) > capacity:
        raise PropertyBroken(CAPACITY, f"{len(accepted)} identities accepted on a ledger for {capacity}")
    if early := {number: full for number, full in record.refusals.items() if full != (capacity, capacity)}:
        raise PropertyBroken(CAPACITY, f"refused while there was room, or by a ledger that forgot: {early}")
    if forgotten := sorted(accepted & set(record.refusals)):
        raise PropertyBroken(CAPACITY, f"accepted and refused, so it was forgotten in between: {forgotten[:5]}")


def check_nothing_without_identity_is_dropped(record: DedupeRecord) -> None:
    """What has no identity always passes."""
    if dropped := [each for each in record.decisions if _is_anonymous(record, each) and not each.accepted]:
        raise PropertyBroken(ANONYMOUS, f"dropped without an identity: {dropped[:5]}")


def check_statistics(life: str, stats: DedupeGatewayStats, decisions: Iterable[Decision]) -> None:
    """A gateway counts each decision of its life, once, under what it was."""
    made = Counter(each.accepted for each in decisions if each.life == life)
    if (stats.accepted_events, stats.dropped_duplicates) != (made[True], made[False]):
        raise PropertyBroken(COUNTED, f"{life}: accepted {made[True]} and dropped {made[False]}, but counts {stats}")


def _is_anonymous(record: DedupeRecord, decision: Decision) -> bool:
    return decision.number in record.without_identity


def _above_one(counts: Counter[int]) -> list[int]:
    return sorted(number for number, count in counts.items() if count > 1)
