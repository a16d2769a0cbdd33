"""Texts in, `Batch` out: checked, written by a layout, tokenized, laid end to end without padding."""
