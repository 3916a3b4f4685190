"""What runs beside the queue: `restart` makes the replica active under each new session."""
