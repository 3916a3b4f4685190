"""CPU-heavy pure jobs on threads: the real adapter of the `Workers` port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadWorkers:
    """Runs at most `threads` jobs at a time; the others wait in the order they came.

    A job whose caller is cancelled is not started if it still waits, and its result is dropped if it runs. The
    label is for worlds that record what runs.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")

    async def run(self, label: str, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    def close(self) -> None:
        """Drop the jobs that wait; those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
