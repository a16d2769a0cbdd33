"""The papers' measurements of a model's layers, tokens and vectors: one file for each, with its figure."""
