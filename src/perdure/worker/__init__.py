"""Runs tasks: polls for them, runs their handlers in bounded slots, keeps their leases alive, reports how they
ended."""
