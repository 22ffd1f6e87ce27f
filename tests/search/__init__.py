"""Searches: the language, the stores, the interfaces."""
