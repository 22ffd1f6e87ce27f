"""Pure rules: what may happen to a task. No I/O, no clock, no randomness of its own."""
