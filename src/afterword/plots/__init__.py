"""Figures of results, in one style. How a new one is made is said in `figure`."""
