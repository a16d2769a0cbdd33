"""The encoder in the dress of other libraries."""
