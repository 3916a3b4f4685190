"""Speed as ratios: what is compared runs in turns, in one run, on one machine. The command is `scripts/bench`."""
