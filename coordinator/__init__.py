"""The coordination service: what replicas agree through.

Znodes, sessions, watches and atomic multis, as ZooKeeper and ClickHouse Keeper define them. This package
has never heard of a table. `coordinator.api` is the port that everything above speaks.
"""
