"""Statements about whole partitions and parts: what the server that is asked does, and writes for the others."""

from replica.partition_commands.carry_out import carry_out

__all__ = ["carry_out"]
