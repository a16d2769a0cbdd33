"""Evaluation: each task loads its data, asks an encoder for vectors and scores them by the protocol of its paper."""
