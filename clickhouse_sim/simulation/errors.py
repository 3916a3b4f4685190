"""What can be wrong with the files that a simulation is told to read."""


class NotARun(Exception):
    """A folder does not hold a recorded run that can be read."""


class ScenarioError(Exception):
    """A scenario that cannot be read or played; the message names the line."""
