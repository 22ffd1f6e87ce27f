"""Batches with group commit: the one door through which every change of a task goes."""
