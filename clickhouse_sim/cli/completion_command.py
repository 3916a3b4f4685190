"""`completion`: the script that teaches a shell the commands."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that teaches a shell to complete chsim.

    \b
    eval "$(chsim completion bash)"                                  # in ~/.bashrc
    eval "$(chsim completion zsh)"                                   # in ~/.zshrc
    chsim completion fish > ~/.config/fish/completions/chsim.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(context.find_root().command, {}, "chsim", "_CHSIM_COMPLETE").source())
