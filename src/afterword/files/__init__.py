"""Read the user's texts and rows, and load and save encoders."""
