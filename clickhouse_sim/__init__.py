"""clickhouse-sim: run a replicated cluster, ask it, break it, understand it."""

__version__ = "0.1.0"
