"""Adapters: encoders as models for other libraries (mteb), and other libraries' models as embedders."""
