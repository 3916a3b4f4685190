"""How each type of log entry is carried out: one file a type, and what several of them share."""

from replica.operations.execute import execute

__all__ = ["execute"]
