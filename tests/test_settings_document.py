"""docs/settings.md lists the table settings that there are, in their order, with their defaults and descriptions."""

from __future__ import annotations

import re
from pathlib import Path

from replica.settings import SETTINGS

DOCUMENT = Path(__file__).parent.parent / "docs" / "settings.md"


def test_the_document_lists_every_setting_with_its_default_and_description() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == [(each.name, str(each.default), each.description) for each in SETTINGS.values()]
