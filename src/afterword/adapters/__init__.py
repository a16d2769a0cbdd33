"""Adapters: encoders as models of other libraries (mteb), and models of other libraries as embedders."""
