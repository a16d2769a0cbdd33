"""Analysis: the papers' measurements of a model's layers, tokens and vectors."""
