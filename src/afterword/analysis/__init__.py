"""Analysis: what a model's layers, tokens and vectors are like, by the measurements of the papers."""
