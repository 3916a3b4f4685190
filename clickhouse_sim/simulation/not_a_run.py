"""The error about folders of runs, apart from what it takes to read one."""


class NotARun(Exception):
    """A folder does not hold a recorded run that can be read."""
