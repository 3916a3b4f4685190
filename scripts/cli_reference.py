"""The reference of the command line, made of the commands themselves.

`docs/cli.md` is written by hand above its mark, and from here below it. `chsim --help` prints a page that lies ready
in a file, so that it need not import what makes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
MARK = "<!-- From here on written by scripts/cli-reference. -->\n"
_WIDTH = 100


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command with its words, a group before its subcommands."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))


def help_page(command: click.Command, path: tuple[str, ...], width: int = _WIDTH) -> str:
    """What `--help` prints."""
    parent: click.Context | None = None
    for word in path[:-1]:
        parent = click.Context(click.Group(), info_name=word, parent=parent)
    settings = {**command.context_settings, "help_option_names": ["-h", "--help"]}
    settings |= {"terminal_width": width, "max_content_width": width}
    return click.Context(command, info_name=path[-1], parent=parent, **settings).get_help() + "\n"


def reference(main: click.Command) -> str:
    """The part of `docs/cli.md` that is made here."""
    pages = ((" ".join(path), help_page(each, path)) for path, each in commands(main, ("chsim",)))
    return "\n".join(f"### {name}\n\n```\n{page}```\n" for name, page in pages)


def documents() -> dict[Path, str]:
    """What has to lie where."""
    sys.path.insert(0, str(ROOT))
    from clickhouse_sim.cli.entry import HELP_PAGE
    from clickhouse_sim.cli.main import main

    guide = ROOT / "docs" / "cli.md"
    by_hand, mark, _ = guide.read_text().partition(MARK)
    return {guide: f"{by_hand}{mark or MARK}\n{reference(main)}", Path(HELP_PAGE): help_page(main, ("chsim",), 80)}


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
