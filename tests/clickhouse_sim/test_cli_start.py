"""How `chsim` starts: its help pages, what they import, the reference made of them, shell completion."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from clickhouse_sim.cli.main import main

_ROOT = Path(__file__).parents[2]
_HEAVY = {"asyncio", "clickhouse_sim.cluster.cluster", "coordinator", "duckdb", "kazoo", "numba", "numpy", "pyarrow"}
_HEAVY |= {"replica", "rich", "sqlglot"}


def imported_by(*arguments: str) -> set[str]:
    """The modules that a run of `chsim` has imported in the end."""
    code = (
        "import sys, json\n"
        f"sys.argv = ['chsim', *{list(arguments)!r}]\n"
        "from clickhouse_sim.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_page_imports_nothing(option: str) -> None:
    own = {name for name in imported_by(option) if name.startswith("clickhouse_sim")}
    assert own == {"clickhouse_sim", "clickhouse_sim.cli", "clickhouse_sim.cli.entry"}
    assert "click" not in imported_by(option)


@pytest.mark.parametrize("arguments", [["queue", "--help"], ["insert", "--help"], ["up", "--help"], ["--version"]])
def test_the_help_of_a_command_imports_click_and_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(*arguments) & _HEAVY == set()


def test_the_reference_and_the_help_page_are_those_of_the_code() -> None:
    """If not: run scripts/cli-reference (another version of click may also word its help otherwise)."""
    specification = importlib.util.spec_from_file_location("cli_reference", _ROOT / "scripts" / "cli_reference.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for path, text in module.documents().items():
        assert path.read_text() == text, f"{path} is old: run scripts/cli-reference"


def test_the_help_page_says_what_click_would() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clickhouse_sim", "--help"], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    clicks = CliRunner().invoke(main, ["--help"], prog_name="chsim").output
    assert done.stdout.split() == clicks.split()


# --- shell completion ----------------------------------------------------------------------------------------


def completed(folder: Path, *words: str) -> list[str]:
    shell = ShellComplete(main, {}, "chsim", "_CHSIM_COMPLETE")
    environment = os.environ.get("CHSIM_DIR")
    os.environ["CHSIM_DIR"] = str(folder)
    try:
        return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]
    finally:
        os.environ.pop("CHSIM_DIR") if environment is None else os.environ.update(CHSIM_DIR=environment)


def test_commands_members_and_tables_are_completed(toy_cluster: Any) -> None:
    root = toy_cluster.folder.root
    definitions = root / "r1" / "data" / "metadata" / "default"
    definitions.mkdir(parents=True)
    for name in ("visits", "my%2Dflights"):
        (definitions / f"{name}.json").write_text("{}")
    assert completed(root, "st") == ["status", "start"]
    assert completed(root, "kill", "") == ["coordinator", "r1", "r2"]
    assert completed(root, "sql", "--replica", "r") == ["r1", "r2"]
    assert completed(root, "queue", "") == ["my-flights", "visits"]
    assert completed(root, "queue", "--format", "js") == ["json", "jsonl"]
    assert completed(root, "znodes", "w") == ["watch"]
    assert completed(root, "kill", "--dir", str(root / "nowhere"), "") == []


def test_completion_imports_nothing_heavy(toy_cluster: Any) -> None:
    code = (
        (
            "import sys\nfrom clickhouse_sim.cli.main import main\n"
            "from click.shell_completion import ShellComplete\n"
            "ShellComplete(main, {}, 'chsim', '_CHSIM_COMPLETE').get_completions(['kill'], '')\n"
            f"print(sorted({sorted(_HEAVY)!r} & sys.modules.keys()))"
        )
        .replace("print(sorted([", "print(sorted(set([")
        .replace("] & sys", "]) & sys")
    )
    environment = {**os.environ, "CHSIM_DIR": str(toy_cluster.folder.root)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_CHSIM_COMPLETE" in result.stdout
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(result.stdout)
        assert subprocess.run([shell, "-n", str(script)], capture_output=True, check=False).returncode == 0


def test_bash_completes(tmp_path: Path) -> None:
    """The way that bash goes: the environment says what was typed so far."""
    environment = {**os.environ, "_CHSIM_COMPLETE": "bash_complete", "COMP_WORDS": "chsim pa", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "clickhouse_sim"],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,pause\nplain,partition\nplain,parts\n"
