"""The wheel that `python -m build` makes, installed where nothing of this checkout is in reach."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """It brings all three packages and the command; its dependencies are borrowed from this environment."""
    dist = tmp_path / "dist"
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(ROOT))
    (wheel,) = dist.glob("clickhouse_sim-*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    site = next((environment / "lib").glob("python*/site-packages"))
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    where = _run(python, "-c", "import coordinator, replica, clickhouse_sim as c; print(c.__file__, c.__version__)")
    assert str(site) in where
    chsim = str(environment / "bin" / "chsim")
    assert _run(chsim, "--help").startswith("Usage: chsim")
    cluster = str(tmp_path / "cluster")
    try:
        _run(chsim, "up", "--replicas", "1", "--dir", cluster)
        create = "CREATE TABLE t (k UInt8) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY k"
        _run(chsim, "sql", "--dir", cluster, create)
        _run(chsim, "sql", "--dir", cluster, "INSERT INTO t VALUES (1), (2)")
        assert _run(chsim, "sql", "--dir", cluster, "SELECT count() FROM t") == '{"count()": 2}\n'
    finally:
        _run(chsim, "down", "--dir", cluster)


def _run(*command: str) -> str:
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CHSIM_DIR")}
    done = subprocess.run(command, cwd="/", env=outside, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
