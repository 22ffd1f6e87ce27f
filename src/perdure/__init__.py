"""Durable background jobs for Python, on a SQLite file or on PostgreSQL."""
