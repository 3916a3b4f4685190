"""A history as one page: lanes, bars and marks over virtual time, and the way to what went wrong."""

from clickhouse_sim.simulation.story.page import story_page

__all__ = ["story_page"]
