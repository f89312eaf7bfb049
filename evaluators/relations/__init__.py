"""Queries over the store that give evaluators their relations."""
