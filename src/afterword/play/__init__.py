"""A page on this machine: which words make two texts similar, and a word's vectors in several contexts."""

from .server import Choice, Server

__all__ = ["Choice", "Server"]
