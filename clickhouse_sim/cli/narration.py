"""What people are told on stderr; never data."""

from __future__ import annotations

import click


def narrate(sentence: str) -> None:
    """Tell people what happens."""
    click.echo(sentence, err=True)


def complain(sentence: str) -> None:
    """Say what went wrong."""
    click.echo(f"Error: {sentence}", err=True)


def counted(count: int, thing: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
