"""docs/ingest.md, done as a reader would do it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for of, text in _BLOCK.findall((ROOT / "docs" / "ingest.md").read_text()) if of == kind]


def test_the_programs_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for text in blocks("python"):
        exec(compile(text, "docs/ingest.md", "exec"), names)


def test_the_commands_print_what_is_shown(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shim = f'chsim() {{ {sys.executable} -m clickhouse_sim "$@"; }}\n'
    for text in blocks("console"):
        for step in text.split("$ ")[1:]:
            command, _, shown = step.partition("\n")
            done = subprocess.run(
                ["bash", "-c", shim + command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout == shown, command
