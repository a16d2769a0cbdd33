"""Texts and a method in, vectors out: batches of bounded size, one forward each, `embedding = weights @ states`."""
