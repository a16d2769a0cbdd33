"""What is done to vectors once they are made: normalise, truncate, project."""

from .linear import ACTIVATIONS, Dense, Normalise, Post, Truncate

__all__ = ["ACTIVATIONS", "Dense", "Normalise", "Post", "Truncate"]
