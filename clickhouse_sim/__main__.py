"""`python -m clickhouse_sim` is `chsim`."""

from clickhouse_sim.cli.main import main

main(prog_name="chsim")
