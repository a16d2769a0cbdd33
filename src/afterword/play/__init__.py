"""A page on this machine: which words make two texts similar, and a word's vectors in several contexts."""

from .server import Choice, Questions, Server

__all__ = ["Choice", "Questions", "Server"]
