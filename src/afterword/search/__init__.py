"""Search: an index of texts and vectors on disk, and groups of vectors (near-duplicates and clusters)."""
