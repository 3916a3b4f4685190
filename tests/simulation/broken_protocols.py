"""Deliberately broken protocols: one small edit of the source each, applied while its module is imported.

`python broken_protocols.py broken/NAME.txt PLAN FIRST LAST` plays seeds with the broken code and prints the first
failing one and the property that it breaks, or nothing. A file of `broken/` says in its first lines what is broken,
then names the source file, the text that stands there once, and what stands there instead.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent / "broken"


@dataclass(frozen=True)
class BrokenProtocol:
    """`edits` are (source file relative to the root, old text, new text)."""

    name: str
    what: str
    edits: tuple[tuple[str, str, str], ...]

    @classmethod
    def read(cls, path: Path) -> BrokenProtocol:
        """Raises ValueError when an edit does not fit the source as it is."""
        head, *pieces = path.read_text("utf-8").split("\n@@ ")
        edits = []
        for piece in pieces:
            file, _, body = piece.partition("\n")
            old, _, new = body.partition("\n=>\n")
            new = new.rstrip("\n")
            if (ROOT / file).read_text("utf-8").count(old) != 1:
                raise ValueError(f"{path.name}: the text to break does not stand in {file} exactly once:\n{old}")
            edits.append((file, old, new))
        return cls(path.stem, " ".join(head.split()), tuple(edits))


class _Breaker(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the edited modules from their edited source."""

    def __init__(self, broken: BrokenProtocol) -> None:
        self._edits: dict[str, list[tuple[str, str, str]]] = {}
        for file, old, new in broken.edits:
            self._edits.setdefault(file.removesuffix(".py").replace("/", "."), []).append((file, old, new))
        self.applied: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._edits:
            return None
        return importlib.util.spec_from_file_location(fullname, ROOT / self._edits[fullname][0][0], loader=self)

    def exec_module(self, module: ModuleType) -> None:
        edits = self._edits[module.__name__]
        source = (ROOT / edits[0][0]).read_text("utf-8")
        for _, old, new in edits:
            source = source.replace(old, new)
        exec(compile(source, edits[0][0], "exec"), module.__dict__)
        self.applied.add(module.__name__)


def main(file: str, plan: str, first: str, last: str) -> None:
    broken = BrokenProtocol.read(Path(file))
    breaker = _Breaker(broken)
    sys.meta_path.insert(0, breaker)
    sys.path.insert(0, str(ROOT))
    from clickhouse_sim.simulation.batch import silence
    from clickhouse_sim.simulation.history import PLANS
    from clickhouse_sim.simulation.verdict import Ending, judge

    silence()
    for seed in range(int(first), int(last) + 1):
        verdict = judge(seed, PLANS[plan])
        if verdict.ending is not Ending.HELD:
            failure = {"seed": seed, "ending": str(verdict.ending), "property": verdict.property}
            print(json.dumps({**failure, "message": verdict.message[:300]}))
            break
    assert breaker.applied == set(breaker._edits), "the broken module was never imported"


if __name__ == "__main__":
    main(*sys.argv[1:])
