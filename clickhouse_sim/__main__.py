"""`python -m clickhouse_sim` is `chsim`."""

from clickhouse_sim.cli.entry import main

main()
