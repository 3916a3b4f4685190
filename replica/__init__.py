"""One replica: what a ClickHouse server does with its ReplicatedMergeTree tables.

Parts, the log, the queue, the pools. Talks to the coordination service only through `coordinator.api`, to
everything else outside only through the ports of `replica.environment`.
"""

import logging

# Whoever runs this decides where its log goes; by default nowhere.
logging.getLogger(__name__).addHandler(logging.NullHandler())
