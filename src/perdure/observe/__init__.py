"""Metrics of a server: what is counted and what is looked up, and the page that Prometheus reads."""
