"""Load, check and run a Hugging Face model, from `Batch` to `Trace`, and read its hidden states and attention."""
