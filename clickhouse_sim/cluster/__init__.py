"""Spins up, finds and stops a cluster of local processes; one folder holds its state, logs and pids."""
