"""What stands in front of a table: deduplication of events before they become blocks."""
