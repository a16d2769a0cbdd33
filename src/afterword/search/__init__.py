"""Index texts and vectors on disk, search them, and group vectors into near-duplicates and clusters."""
