"""The second world: the same replica code on virtual time, with faults drawn from one seed.

From the inside out: `tape` (every random decision), `loop` (virtual time and drawn interleavings), `trace` (what
happened, as a hash), the simulated ports `disk`, `network`, `transfer`, `workers`, `clock`, `sessions` behind one
`gate` a replica life, and `world`, which builds replicas out of them, crashes them and starts them again.
"""
