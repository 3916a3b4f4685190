"""What `chsim dedupe` does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.ingest.gateway import DedupeError, DedupeGateway, SqliteIdentityLedger
from replica.errors import CannotParseText

_STDIN = Path("-")
_CHUNK_BYTES = 1 << 16


def run_dedupe(
    source: Path, gateway: DedupeGateway, ledger: SqliteIdentityLedger | None, *, tell_stats: bool
) -> None:
    """Pass on the lines that the gateway accepts, as they are.

    A stream is not known whole before it ends, so what cannot be read is refused where it stands: the lines before it
    have been passed on. What has arrived is filtered and written at once, nothing waits for more. With a ledger, the
    claims of what has arrived are committed together before any of it is written: a crash in between loses lines
    rather than passing one on twice.

    Raises CannotParseText, naming the line, and what the gateway raises.
    """
    target = sys.stdout.buffer
    together: Callable[[], AbstractContextManager[None]] = nullcontext if ledger is None else ledger.together
    number = 1
    try:
        with _opened(source) as stream:
            for lines in _arriving_lines(stream):
                with together():
                    passed, problem = _filtered(lines, number, gateway)
                target.write(b"".join(line + b"\n" for line in passed))
                target.flush()
                if problem is not None:
                    raise problem
                number += len(lines)
    finally:
        if tell_stats:
            narrate(json.dumps(asdict(gateway.get_stats())))
        gateway.destroy()
        if ledger is not None:
            ledger.close()


def _opened(source: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if source == _STDIN else source.open("rb")


def _arriving_lines(stream: BinaryIO) -> Iterator[Sequence[bytes]]:
    """The complete lines that have arrived, each time that some have, without their ends; in the end the last one."""
    begun: list[bytes] = []
    while chunk := cast(Any, stream).read1(_CHUNK_BYTES):
        complete, end, rest = chunk.rpartition(b"\n")
        if end:
            yield (b"".join(begun) + complete).split(b"\n")
            begun.clear()
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


def _filtered(
    lines: Sequence[bytes], first_number: int, gateway: DedupeGateway
) -> tuple[list[bytes], CannotParseText | DedupeError | None]:
    """The lines that pass, up to one that cannot be read or decided, and why that one cannot."""
    passed = []
    for number, line in enumerate(lines, start=first_number):
        try:
            text = line.strip()
            if text and gateway.filter(_event(text, number)):
                passed.append(line)
        except (CannotParseText, DedupeError) as problem:
            return passed, problem
    return passed, None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)


def _event(text: bytes, number: int) -> dict[str, object]:
    """The object on a line. What of it is no UTF-8 stays what it is, as in all of `chsim`."""
    try:
        decoded = text.decode("utf-8", "surrogateescape")
        event, end = _DECODER.raw_decode(decoded)
        if end != len(decoded):
            raise ValueError(f"there is more after column {end}")
    except (ValueError, RecursionError) as problem:
        raise CannotParseText(f"Line {number} is not a JSON object on one line: {problem}") from None
    if not isinstance(event, dict):
        raise CannotParseText(f"Line {number} is not a JSON object: {text[:50].decode(errors='replace')}")
    return event
