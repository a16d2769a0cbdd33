"""From texts to a `Batch`: texts are validated, put into a layout, tokenized, and concatenated without padding."""
