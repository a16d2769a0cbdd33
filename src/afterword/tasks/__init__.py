"""Evaluation: each task reads its data, asks for vectors and scores them by the protocol of its paper."""
