"""One replica: what a ClickHouse server does with its ReplicatedMergeTree tables.

Parts, the log, the queue, the pools. Talks to the coordination service only through `coordinator.api`, to
everything else outside only through the ports of `replica.environment`.
"""
