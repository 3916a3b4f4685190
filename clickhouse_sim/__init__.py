"""clickhouse-sim: run a replicated cluster, ask it, break it, understand it."""

import logging

__version__ = "0.1.0"

# Whoever runs this decides where its log goes; by default nowhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())
