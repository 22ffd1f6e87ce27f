"""Rows in and out of a database, in job verbs. Knows rows, not rules."""
