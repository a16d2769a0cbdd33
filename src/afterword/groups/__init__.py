"""Groups of vectors: near-duplicates, and clusters."""
