"""An index of texts and vectors on disk: built, updated, measured and searched."""
