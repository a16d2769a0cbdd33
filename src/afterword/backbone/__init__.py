"""From a `Batch` to a `Trace`: load, check and run a Hugging Face model; read its hidden states and attention."""
