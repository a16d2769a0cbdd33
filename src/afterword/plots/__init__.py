"""Figures of results, in one style."""
