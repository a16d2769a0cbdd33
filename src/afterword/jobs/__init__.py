"""Embed files of texts into files of vectors, a window of rows at a time; rows without a vector are listed."""
