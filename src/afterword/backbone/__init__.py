"""`Batch` in, `Trace` out: a Hugging Face model is loaded, checked and run; its states and attention are read."""
