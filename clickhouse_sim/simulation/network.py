"""The simulated network: how long each message travels, whether it arrives, and who answers at which address.

Messages are bytes. Nothing here promises that two messages between the same machines arrive in the order in which
they were sent; who needs that builds it on top, as the coordination service's client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from clickhouse_sim.simulation.gate import Gate, context_of
from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.trace import Trace, fingerprint
from replica.environment import Chance
from replica.errors import ClickHouseError, NetworkError, error_from_json

Answer = Callable[[bytes], Awaitable[bytes]]

_SHARES = range(1000)
# What travels from the coordination service to its client, by its label; everything else goes the other way.
_FROM_SERVICE = ("welcome", "reply", "event", "goodbye")


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to messages: each takes a drawn time between `quickest` and `slowest` seconds, and one
    in a thousand times `loss_permille` is lost."""

    quickest_seconds: float = 0.0002
    slowest_seconds: float = 0.005
    loss_permille: int = 0


CALM = Weather()


@dataclass(frozen=True, slots=True)
class _Door:
    """Who answers at an address, in which life."""

    answer: Answer
    gate: Gate


class Network:
    """One network for all machines of a run; `weather` may be changed at any time."""

    def __init__(self, chance: Chance, trace: Trace) -> None:
        self.weather = CALM
        self._chance = chance
        self._trace = trace
        self._cuts: set[tuple[str, str]] = set()
        self._without_multis: dict[str, str] = {}
        self._next_replies_lost: dict[str, str] = {}
        self._replies_to_lose: set[str] = set()
        self._doors: dict[str, _Door] = {}

    # --- one message -----------------------------------------------------------------------------------------

    def delay(self, source: str, target: str, what: str) -> float | None:
        """Seconds that a message to the target is on its way, None if it is lost."""
        weather = self.weather
        lost = (source, target) in self._cuts or self._is_muted(source, target, what)
        if not lost and weather.loss_permille:
            lost = self._chance.choose("message lost", _SHARES) >= 1000 - weather.loss_permille
        if lost:
            self._trace.note("network", f"lost {source} {target} {what}", Mark.MESSAGE_LOST)
            return None
        share = self._chance.choose("message delay", _SHARES) / 1000
        return weather.quickest_seconds + share * (weather.slowest_seconds - weather.quickest_seconds)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """From now on no message from `one` arrives at `other`, nor the other way round unless `one_way`."""
        self._cuts.add((one, other))
        if not one_way:
            self._cuts.add((other, one))
        self._trace.note("network", f"cut {one} {'>' if one_way else '-'} {other}", Mark.CUT)

    def heal(self, one: str, other: str) -> None:
        """Undo `cut`, in both directions; fine if there is none."""
        self._cuts -= {(one, other), (other, one)}
        self._trace.note("network", f"healed {one} - {other}", Mark.HEALED)

    def lose_multi_replies(self, client: str) -> None:
        """From now on the coordination service applies this client's multis, and every reply to one is lost."""
        self._without_multis[client] = " reply "
        self._trace.note("network", f"loses multi replies to {client}", Mark.MUTED)

    def lose_multi_requests(self, client: str) -> None:
        """From now on no multi of this client arrives at the coordination service."""
        self._without_multis[client] = " request "
        self._trace.note("network", f"loses multi requests of {client}", Mark.MUTED)

    def deliver_multis(self, client: str) -> None:
        """Undo both; fine if there is nothing to undo."""
        if self._without_multis.pop(client, None):
            self._trace.note("network", f"delivers multis of {client}", Mark.HEALED)

    def lose_next_reply(self, client: str, multi: str) -> None:
        """The reply to the client's next multi that begins with these operations, as `Create,Delete`, is lost."""
        self._next_replies_lost[client] = multi
        self._trace.note("network", f"is to lose the reply to the next {multi} of {client}", Mark.MUTED)

    def _is_lost_reply(self, label: str) -> bool:
        """By its label, whether this is the one reply that is to be lost; learns from requests which one that is."""
        client, session, kind, xid, *what = label.split(" ", 5)
        if kind == "request" and what[:1] == ["Multi"]:
            wanted = self._next_replies_lost.get(client)
            if wanted is not None and what[1].startswith(wanted):
                del self._next_replies_lost[client]
                self._replies_to_lose.add(f"{client} {session} reply {xid} Multi")
        return label in self._replies_to_lose

    def _is_muted(self, source: str, target: str, what: str) -> bool:
        if " Multi" not in what:
            return False
        kind = self._without_multis.get(target if " reply " in what else source)
        return (kind is not None and kind in what) or self._is_lost_reply(what)

    def link(self, one: str, other: str, gate: Gate) -> Link:
        """The way between two machines for a life of `one`."""
        return Link(self, one, other, gate)

    # --- question and answer ---------------------------------------------------------------------------------

    def listen(self, address: str, answer: Answer, gate: Gate) -> None:
        """Answer questions at `<machine>:<port>`, each in a task of the gate's life, until `hang_up` or its crash.

        Raises OSError when somebody living listens there already.
        """
        if self._door(address) is not None:
            raise OSError(f"address already in use: {address}")
        self._doors[address] = _Door(answer, gate)

    def hang_up(self, address: str) -> None:
        """Stop listening; questions that are being answered still are."""
        self._doors.pop(address, None)

    async def ask(self, asker: str, address: str, what: str, question: bytes) -> bytes:
        """The answer. Raises the ClickHouseError that the other side raised, NetworkError when nobody listens there
        or the one who did has died meanwhile. Waits for ever when a message is lost: bring a deadline.

        The question is on its way from the first moment, and is answered even if the asker stops waiting.
        """
        host = address.rpartition(":")[0]
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            door = self._door(address)
            if door is None:
                fail("nobody listens there")
            else:
                self._answer(door, question, succeed, fail)

        def succeed(answer: bytes) -> None:
            self._send(host, asker, f"{what} answer {fingerprint(answer)}", lambda: _settle(outcome, answer))

        def fail(why: str) -> None:
            error = NetworkError(f"{address} cannot be reached: {why}")
            self._send(host, asker, f"{what} failure", lambda: _settle(outcome, error))

        self._send(asker, host, f"{what} question {fingerprint(question)}", arrive)
        return _opened(await outcome)

    def _answer(
        self, door: _Door, question: bytes, succeed: Callable[[bytes], None], fail: Callable[[str], None]
    ) -> None:
        def done(task: asyncio.Task[bytes]) -> None:
            if task.cancelled():
                fail("it died before it had answered")
            else:
                succeed(task.result())

        asyncio.get_running_loop().create_task(
            _answer_to(door, question), context=context_of(door.gate)
        ).add_done_callback(done)

    def _door(self, address: str) -> _Door | None:
        door = self._doors.get(address)
        return door if door is not None and door.gate.open else None

    def _send(self, source: str, target: str, what: str, arrive: Callable[[], None]) -> None:
        def arrived() -> None:
            self._trace.note("network", f"{source} > {target} {what}")
            arrive()

        seconds = self.delay(source, target, what)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, arrived)


class Link:
    """The way between two machines during a life of the first; fits `coordinator.local_client.Delivery`."""

    def __init__(self, network: Network, one: str, other: str, gate: Gate) -> None:
        self._network = network
        self._one = one
        self._other = other
        self._gate = gate

    def delay(self, label: str) -> float | None:
        """Seconds on the way; None for a lost message, and for every message once the life is over."""
        if not self._gate.open:
            return None
        comes_back = label.split(" ", 3)[2] in _FROM_SERVICE
        source, target = (self._other, self._one) if comes_back else (self._one, self._other)
        return self._network.delay(source, target, label)


# An answer crosses as one letter and its content.
_RESULT, _ERROR = b"R", b"E"


async def _answer_to(door: _Door, question: bytes) -> bytes:
    try:
        return _RESULT + await door.answer(question)
    except ClickHouseError as error:
        return _ERROR + error.to_json().encode()
    except Exception as problem:
        # As the real server's edge does: a bug of one answer is told to the asker.
        return _ERROR + ClickHouseError(f"{type(problem).__name__}: {problem}").to_json().encode()


def _settle(outcome: asyncio.Future[bytes], result: bytes | NetworkError) -> None:
    if outcome.done():
        return
    if isinstance(result, NetworkError):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)


def _opened(answer: bytes) -> bytes:
    if answer[:1] == _ERROR:
        raise error_from_json(answer[1:].decode())
    return answer[1:]
