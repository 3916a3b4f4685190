"""How a property says that it does not hold."""

from __future__ import annotations


class PropertyBroken(Exception):
    """A property does not hold; `property` names it, the message gives the first evidence."""

    def __init__(self, property: str, evidence: str) -> None:
        super().__init__(evidence)
        self.property = property
