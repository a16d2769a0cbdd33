"""Texts, tokens and curves of the afterword-mini recipe."""
