"""From texts to a `Batch`: validate texts, put them into a layout, tokenize and concatenate them without padding."""
