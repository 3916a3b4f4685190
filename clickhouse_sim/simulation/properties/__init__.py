"""What must hold, one promise a file, re-derived from znodes and parts and not from a replica's own opinion.

Some are followed through every transaction of the coordination service (`followed`), some looked at while faults
happen, the others once all faults have healed (`after_healing`).
"""
