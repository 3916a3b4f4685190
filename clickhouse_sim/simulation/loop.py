"""An asyncio event loop on virtual time that draws which ready callback runs next.

Nothing sleeps: when no callback is ready, time jumps to the next timer. When several are ready, the tape says which
one runs, so that a seed explores interleavings and not just latencies. One order is kept, because asyncio's own code
and everybody's intuition rest on it: the callbacks of one future run in the order in which they were added to it.
Option 0 is the callback that has waited longest; a blank tape runs in asyncio's own order.

What could make two runs of one tape differ is taken away:

* Tasks and futures hash by a number of their own, not by address: asyncio keeps tasks in sets and iterates them.
  (`asyncio.as_completed` makes a set of bare coroutines before they are tasks; give it tasks.)
* The garbage collector runs at fixed callback counts, not when the heap's history makes it: it closes abandoned
  asynchronous generators, which takes a task.
* Threads, sockets, pipes, processes and signals are refused by name (`NotSimulated`).

Written on `AbstractEventLoop`: nothing of asyncio's implementation is relied on but what its documents give to the
writers of event loops.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple, cast

from clickhouse_sim.simulation.tape import Tape

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALLBACKS_PER_COLLECTION = 50_000
_CALLBACKS_PER_INSTANT = 1_000_000
_CANCELLED_TIMERS_KEPT = 1000

_logger = logging.getLogger(__name__)


class SimulationError(Exception):
    """The simulated program cannot go on, or asks for what the simulation does not have."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and the main task waits: it would wait for ever."""


class TimeStandsStill(SimulationError):
    """A million callbacks ran at one instant of virtual time: something spins without ever waiting."""


class NotSimulated(SimulationError):
    """The program reached past its ports: the simulated loop has no threads, sockets, processes or signals."""


class SimulatedTask(asyncio.Task[T]):
    """A task with a number, by which it hashes; equal to itself only. `context` is the one that it runs in."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, loop: SimulatedLoop, number: int, context: Context, **more: Any
    ) -> None:
        self.number = number  # first: the constructor of a task already puts it into a set
        self.context = context
        super().__init__(coro, loop=loop, context=context, **more)

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future[T]):
    """A future with a number, for the same reason."""

    def __init__(self, *, loop: SimulatedLoop, number: int) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class _Callback(asyncio.Handle):
    """A ready callback; `following` is the next callback of the same future."""

    __slots__ = ("following",)

    _context: Context

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimulatedLoop, context: Context | None
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.following: _Callback | None = None


class _Timer(asyncio.TimerHandle):
    """A timer; `_scheduled`, which asyncio leaves to the loop, says that it is among the timers."""

    __slots__ = ()

    _context: Context
    _scheduled: bool


class SimulatedLoop(asyncio.AbstractEventLoop):
    """See the module. `callbacks` counts the callbacks run, `time()` is virtual and starts at 0."""

    def __init__(self, tape: Tape) -> None:
        self.callbacks = 0
        self._tape = tape
        self._now = 0.0
        self._ready: list[_Callback | _Timer] = []
        self._is_frozen: Callable[[Context], bool] | None = None
        self._frozen: list[_Callback | _Timer] = []
        # The last callback that the running one made ready, to which the next one of the same future is chained.
        self._last_made: _Callback | None = None
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._tasks: list[SimulatedTask[Any]] = []
        self._tasks_kept = 100
        self._numbers = 0
        self._instant_ends_at = _CALLBACKS_PER_INSTANT
        self._next_collection = _CALLBACKS_PER_COLLECTION
        self._thread: int | None = None
        self._closed = False
        self._failure: BaseException | None = None
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # --- running ---------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run until this future or coroutine is done; its result.

        Raises Deadlock, TimeStandsStill, and what a bare callback lets out: that is nobody's result.
        """
        self._check_open()
        main = asyncio.ensure_future(future, loop=self)
        with self._running():
            while not main.done():
                if not self._ready:
                    self._advance()
                elif self.callbacks >= self._instant_ends_at:
                    raise TimeStandsStill(
                        f"{_CALLBACKS_PER_INSTANT} callbacks ran at {self._now:.6f} s; live tasks: {self._describe()}"
                    )
                self._run_one()
                if self._failure is not None:
                    raise self._failure
        return main.result()

    def _run_one(self) -> None:
        ready = self._ready
        index = self._tape.draw("ready", len(ready)) if len(ready) > 1 else 0
        handle = ready[index]
        if isinstance(handle, _Callback) and handle.following is not None:
            ready[index] = handle.following
        else:
            del ready[index]
        self._last_made = None
        self.callbacks += 1
        if handle._cancelled:
            return
        if self._is_frozen is not None and self._is_frozen(handle._context):
            self._frozen.append(handle)
        else:
            handle._run()

    def freeze(self, is_frozen: Callable[[Context], bool] | None) -> None:
        """From now on callbacks with such a context do not run, until another call lets them; None lets all run.

        As a stopped process: its timers pass, and what came due meanwhile happens when it goes on.
        """
        self._is_frozen = is_frozen
        self._ready += self._frozen
        self._frozen.clear()

    def _advance(self) -> None:
        """Jump to the next timer, and make all that are due ready."""
        if self.callbacks >= self._next_collection:
            self._next_collection = self.callbacks + _CALLBACKS_PER_COLLECTION
            gc.collect()
            if self._ready:
                return
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise Deadlock(f"nothing will ever happen after {self._now:.6f} s; waiting: {self._describe()}")
        self._now = timers[0][0]
        self._instant_ends_at = self.callbacks + _CALLBACKS_PER_INSTANT
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False
            if handle._cancelled:
                self._timers_cancelled -= 1
            else:
                self._ready.append(handle)

    @contextmanager
    def _running(self) -> Iterator[None]:
        hooks = sys.get_asyncgen_hooks()
        self._thread = threading.get_ident()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_generator)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self._thread = None

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator was abandoned half way: a task of its own runs its `finally` blocks."""
        if not self._closed:
            self.create_task(generator.aclose())

    def is_running(self) -> bool:
        return self._thread is not None

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._thread is not None:
            raise RuntimeError("cannot close a running event loop")
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    # --- callbacks and timers --------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_open()
        handle = _Callback(callback, args, self, context)
        last = self._last_made
        if last is not None and _completes_the_same_future(last, args):
            last.following = handle
        else:
            self._ready.append(handle)
        self._last_made = handle
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._thread is not None and self._thread != threading.get_ident():
            raise NotSimulated("a thread called into the simulated loop: a simulated run has one thread only")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_open()
        handle = _Timer(when, callback, args, self, context)
        if when <= self._now:
            self._ready.append(handle)
        else:
            handle._scheduled = True
            self._timers_made += 1
            heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by a timer that is cancelled; most deadlines end so."""
        if not cast(_Timer, handle)._scheduled:
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > max(_CANCELLED_TIMERS_KEPT, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if not timer[2]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    # --- tasks and futures -----------------------------------------------------------------------------------

    def create_future(self) -> SimulatedFuture[Any]:
        self._numbers += 1
        return SimulatedFuture(loop=self, number=self._numbers)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None, **more: Any
    ) -> SimulatedTask[Any]:
        self._check_open()
        self._numbers += 1
        number = self._numbers
        label = f"task-{number}" if name is None else str(name)
        own = copy_context() if context is None else context
        task = SimulatedTask(coro, loop=self, number=number, name=label, context=own, **more)
        # Held until done: a task that only its own frame refers to would end when the collector finds it.
        self._tasks.append(task)
        if len(self._tasks) > 2 * self._tasks_kept:
            self._tasks_kept = max(100, len(self.live_tasks()))
        return task

    def end_tasks(self) -> None:
        """Cancel all live tasks, oldest first, and run until there is none."""
        self._instant_ends_at = self.callbacks + _CALLBACKS_PER_INSTANT
        self._failure = None
        self.freeze(None)
        while tasks := self.live_tasks():
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def live_tasks(self) -> list[SimulatedTask[Any]]:
        """All tasks that are not done, oldest first."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return list(self._tasks)

    def _describe(self) -> str:
        tasks = self.live_tasks()
        shown = [f"{task.get_name()} ({task.get_coro().__qualname__})" for task in tasks[:20]]  # type: ignore[union-attr]
        if len(tasks) > len(shown):
            shown.append(f"{len(tasks) - len(shown)} more")
        return ", ".join(shown) or "no task"

    # --- odds and ends that asyncio asks of a loop -----------------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run if a callback failed; else log it, as asyncio does."""
        if "handle" in context:
            self._failure = context["exception"]
            return
        details = ", ".join(
            f"{key}: {context[key]!r}" for key in sorted(context) if key not in ("message", "exception")
        )
        _logger.error(
            "%s (%s)",
            context.get("message") or "unhandled exception in event loop",
            details,
            exc_info=context.get("exception"),
        )


def _completes_the_same_future(last: _Callback, args: tuple[Any, ...]) -> bool:
    last_args = last._args
    return bool(last_args and args and last_args[0] is args[0] and isinstance(args[0], asyncio.Future))


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(_loop: SimulatedLoop, *_args: object, **_options: object) -> NoReturn:
        raise NotSimulated(f"loop.{name}() is not simulated: go through a port of replica.environment instead")

    return refuse


_OUTSIDE = """
    run_forever stop set_debug set_task_factory get_task_factory
    shutdown_asyncgens shutdown_default_executor run_in_executor set_default_executor
    getaddrinfo getnameinfo create_connection create_server create_unix_connection create_unix_server
    create_datagram_endpoint connect_accepted_socket start_tls sendfile
    connect_read_pipe connect_write_pipe subprocess_shell subprocess_exec
    add_reader remove_reader add_writer remove_writer
    sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept
    sock_sendfile add_signal_handler remove_signal_handler
"""
for _name in _OUTSIDE.split():
    setattr(SimulatedLoop, _name, _refusal(_name))


def run(main: Coroutine[Any, Any, T], tape: Tape) -> T:
    """Run a simulated program to its end and return its result, as `asyncio.run` does.

    What is still running when `main` ends is cancelled, oldest first, and runs to its own end. Raises what `main`
    raises, and all that `SimulatedLoop.run_until_complete` does.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("a simulated run cannot start inside a running event loop")
    loop = SimulatedLoop(tape)  # type: ignore[abstract]  # what mypy misses is refused, by name
    with _orderly_collection():
        try:
            return loop.run_until_complete(main)  # type: ignore[no-any-return]
        finally:
            try:
                loop.end_tasks()
            finally:
                loop.close()


@contextmanager
def _orderly_collection() -> Iterator[None]:
    """The collector off, and what was there before the run out of its sight."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
