"""A run is a function of its tape: not of addresses, of string hashes, of the heap or of the collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("restless_world.py")


def outcome(seed: int, hash_seed: int, junk: int) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PROGRAM), str(seed), str(junk)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return json.loads(finished.stdout)


def test_another_process_with_other_hashes_and_another_heap_tells_the_same_story() -> None:
    one = outcome(seed=1, hash_seed=1, junk=0)
    assert one == outcome(seed=1, hash_seed=2, junk=123_457)
    assert one["callbacks"] > 50_000
    assert one["seconds"] > 100
    assert min(one["parts"]) > 0


def test_another_seed_tells_another_story() -> None:
    assert outcome(seed=1, hash_seed=0, junk=0)["trace"] != outcome(seed=2, hash_seed=0, junk=0)["trace"]
