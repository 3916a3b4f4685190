"""The coordination service: what replicas agree through.

Znodes, sessions, watches and atomic multis, as ZooKeeper and ClickHouse Keeper define them. This package
has never heard of a table. `coordinator.api` is the port that everything above speaks.
"""

import logging

# Whoever runs this decides where its log goes; by default nowhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())
