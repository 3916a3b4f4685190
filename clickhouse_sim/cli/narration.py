"""What people are told on stderr; never data."""

from __future__ import annotations

import click


def narrate(sentence: str) -> None:
    """Tell people what happens."""
    click.echo(sentence, err=True)


def complain(sentence: str) -> None:
    """Say what went wrong."""
    click.echo(f"Error: {sentence}", err=True)
