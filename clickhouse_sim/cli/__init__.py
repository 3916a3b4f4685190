"""`chsim`: one thin module per family of commands, one renderer for all output.

The modules with commands import nothing heavy, so that `--help` is quick; what a command does stands in a module of
its own, imported when the command runs.
"""
