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
        self._cuts: set[frozenset[str]] = set()
        self._without_multi_replies: set[str] = set()
        self._doors: dict[str, _Door] = {}

    # --- one message -----------------------------------------------------------------------------------------

    def delay(self, one: str, other: str, what: str) -> float | None:
        """Seconds that a message between these machines is on its way, None if it is lost."""
        weather = self.weather
        lost = frozenset((one, other)) in self._cuts or self._is_muted(one, what)
        if not lost and weather.loss_permille:
            lost = self._chance.choose("message lost", _SHARES) >= 1000 - weather.loss_permille
        if lost:
            self._trace.note("network", f"lost {one} {other} {what}", Mark.MESSAGE_LOST)
            return None
        share = self._chance.choose("message delay", _SHARES) / 1000
        return weather.quickest_seconds + share * (weather.slowest_seconds - weather.quickest_seconds)

    def cut(self, one: str, other: str) -> None:
        """From now on no message between these two arrives, in either direction."""
        self._cuts.add(frozenset((one, other)))
        self._trace.note("network", f"cut {one} {other}", Mark.CUT)

    def heal(self, one: str, other: str) -> None:
        """Undo `cut`; fine if there is none."""
        self._cuts.discard(frozenset((one, other)))
        self._trace.note("network", f"healed {one} {other}", Mark.HEALED)

    def lose_multi_replies(self, client: str) -> None:
        """From now on the coordination service applies this client's multis, and every reply to one is lost."""
        self._without_multi_replies.add(client)
        self._trace.note("network", f"loses multi replies to {client}", Mark.MUTED)

    def deliver_multi_replies(self, client: str) -> None:
        """Undo `lose_multi_replies`; fine if there is none."""
        self._without_multi_replies.discard(client)
        self._trace.note("network", f"delivers multi replies to {client}", Mark.HEALED)

    def _is_muted(self, client: str, what: str) -> bool:
        return client in self._without_multi_replies and " reply " in what and what.endswith(" Multi")

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
        return self._network.delay(self._one, self._other, label) if self._gate.open else None


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
